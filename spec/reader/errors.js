/**
 * What a reader throws (SPEC 12). An error about bytes carries the rule that they break.
 */

/** Bytes that a reader refuses, by a rule of the specification. */
export class Refused extends Error {
  /**
   * @param {string} rule the identifier, such as `LCC-FRM-03`
   * @param {string} message what is wrong, in one sentence
   */
  constructor(rule, message) {
    super(message);
    this.name = new.target.name;
    this.rule = rule;
    /** @type {number|null} the step of the checkpoint of a chain that is refused, where it is known */
    this.step = null;
  }
}

/** A rule of form is broken. */
export class FormatError extends Refused {}

/** The bytes end before what they declare. */
export class TruncatedError extends Refused {}

/** A CRC, a sum or a digest does not match. */
export class ChecksumError extends Refused {}

/** A newer version, or a reserved value. */
export class UnsupportedError extends Refused {}

/** A declared size is beyond a limit. */
export class LimitError extends Refused {}

/** A parent is missing, or is another one. */
export class ChainError extends Refused {}

/** The caller gave something that cannot be used: no reference, or one of another size. */
export class ArgumentError extends Error {
  /** @param {string} message */
  constructor(message) {
    super(message);
    this.name = 'ArgumentError';
  }
}
