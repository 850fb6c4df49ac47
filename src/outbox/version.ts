/** The package's version, as instances register it. A test compares it with package.json. */
export const VERSION = '0.1.0'
