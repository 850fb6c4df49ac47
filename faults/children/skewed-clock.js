// Loaded before everything else: this process believes that it is later or earlier than it is, and can be made to
// change its mind. Timers and performance.now() stay as they are, as with a real clock that is wrong.
const RealDate = Date
globalThis.faultsSkewMs = 0

globalThis.Date = class SkewedDate extends RealDate {
  constructor(...args) {
    super(...(args.length === 0 ? [SkewedDate.now()] : args))
  }

  static now() {
    return RealDate.now() + globalThis.faultsSkewMs
  }
}
