// Loaded before everything else: this process believes that it is SKEW_MS later than it is. performance.now() and
// timers stay as they are, as with a real clock that is wrong.
const skew = Number(process.env.SKEW_MS)
const RealDate = Date

class SkewedDate extends RealDate {
  constructor(...args) {
    super(...(args.length === 0 ? [RealDate.now() + skew] : args))
  }

  static now() {
    return RealDate.now() + skew
  }
}

globalThis.Date = SkewedDate
