import { AftercommitError, keepThrown, nameErrors, seeThrown, type WithThrown } from './base.js'

/** A setting is out of range. Thrown before anything starts. */
export class InvalidSettingError extends AftercommitError {
  static {
    nameErrors(InvalidSettingError, 'InvalidSettingError')
  }

  readonly setting: string
  /** Value that a getter of the settings threw. */
  declare readonly thrown?: unknown

  /** `of` names the object that the setting belongs to: 'handler "send-receipt"', 'relay()'. */
  constructor(setting: string, reason: string, options: WithThrown & { readonly of?: string } = {}) {
    const object = options.of === undefined ? '' : ` of ${options.of}`
    super('INVALID_SETTING', `Invalid setting ${setting}${object}: ${reason}.${seeThrown(options)}`)
    this.setting = setting
    keepThrown(this, options)
  }
}

/** The connection pool cannot serve both the application and the outbox. Thrown at start. */
export class PoolTooSmallError extends AftercommitError {
  static {
    nameErrors(PoolTooSmallError, 'PoolTooSmallError')
  }

  constructor(size: number, needed: number) {
    super(
      'POOL_TOO_SMALL',
      `The connection pool holds ${size}, and the outbox needs at least ${needed}. Raise the pool's maximum, or give the outbox a pool of its own.`,
    )
  }
}

/** The outbox tables are missing or older than this version can work with. */
export class StoreNotMigratedError extends AftercommitError {
  static {
    nameErrors(StoreNotMigratedError, 'StoreNotMigratedError')
  }

  constructor(detail?: string) {
    const what = detail === undefined ? '' : ` (${detail})`
    super(
      'STORE_NOT_MIGRATED',
      `The outbox tables are missing or too old${what}. Run outbox.migrate() first.`,
    )
  }
}
