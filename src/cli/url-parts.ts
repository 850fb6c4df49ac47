/*
 * Hides the user, the password and the parameters of the URLs in use from texts of drivers and servers. Drivers quote them in
 * many ways, for example "Unknown SSL profile 'x'" of mysql2, so a text is searched for each value.
 */

/** The URLs of the running command. Module state, because errors are reported far from the place that reads the options. */
const inUse = { database: '', broker: '' }

/** Sets the URL whose parts `hideUrlParts` hides. It takes the place of the previous URL of the kind. */
export function useUrl(kind: keyof typeof inUse, url: string): void {
  inUse[kind] = url
}

const HIDDEN = '…'

/** Replaces each value of user, password and parameters of the URLs in use. Upper and lower case are not distinguished. */
export function hideUrlParts(text: string): string {
  const values = [...new Set(Object.values(inUse).flatMap(partsOf).flatMap(formsOf))]
  // A value that contains another one must be replaced first.
  values.sort((a, b) => b.length - a.length)
  let shown = text
  for (const value of values) if (value !== '') shown = shown.replace(occurrencesOf(value), HIDDEN)
  return shown
}

/** Shortens an argument that is a URL, because a message must not quote the URL. */
export function withoutUrl(argument: string): string {
  return argument.replace(/:\/\/.*$/s, `://${HIDDEN}`)
}

/** Several servers of NATS are separated by commas. */
function partsOf(urls: string): string[] {
  return urls.split(/,(?=[a-z][\w+.-]*:\/\/)/i).flatMap((url) => [...userInfoOf(url), ...parametersOf(url)])
}

/** A password may contain unescaped `/`, `?`, `#` and `@`, so the user information can end at several places. */
function userInfoOf(url: string): string[] {
  const rest = /^(?!sqlite:|file:)[a-z][\w+.-]*:\/\/(.*)$/is.exec(url)?.[1] ?? ''
  return [rest, rest.replace(/\?.*$/s, ''), rest.replace(/[/?#].*$/s, '')].flatMap((head) => {
    const end = head.lastIndexOf('@')
    if (end < 0) return []
    const userInfo = head.slice(0, end)
    const colon = userInfo.indexOf(':')
    return colon < 0 ? [userInfo] : [userInfo.slice(0, colon), userInfo.slice(colon + 1)]
  })
}

function parametersOf(url: string): string[] {
  const start = url.indexOf('?')
  if (start < 0) return []
  return url
    .slice(start + 1)
    .split(/[&#]/)
    .map((parameter) => parameter.slice(parameter.indexOf('=') + 1))
}

/** Words of a value that are shorter than this are not hidden by themselves: `-c` of `options=-c role=x`. */
const LEAST_WORD = 4

/** Returns the value in each form in which a driver can quote it: decoded, as words, and as the texts in a JSON value. */
function formsOf(value: string): string[] {
  const decoded = [value, decode(value), decode(value.replaceAll('+', ' '))]
  const texts = decoded.flatMap((text) => [text, ...textsOfJson(text)])
  const words = texts.flatMap((text) => text.split(/[\s,=]+/)).filter((word) => word.length >= LEAST_WORD)
  return [...texts, ...words].flatMap((text) => [text, JSON.stringify(text).slice(1, -1)])
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text)
  } catch {
    return text
  }
}

function textsOfJson(text: string): string[] {
  const texts: string[] = []
  try {
    JSON.parse(text, (_key, value: unknown) => {
      if (typeof value === 'string') texts.push(value)
      return value
    })
  } catch {}
  return texts
}

/**
 * Short values are common words and numbers, such as the user `app` or `ssl=1`. They are replaced between spaces or quotes only,
 * longer ones as whole words, and long ones everywhere.
 */
function occurrencesOf(value: string): RegExp {
  const escaped = value.replace(/[\\^$.*+?()[\]{}|/-]/g, '\\$&')
  if (value.length >= 8) return new RegExp(escaped, 'gi')
  if (value.length < LEAST_WORD) return new RegExp(`(?<=^|[\\s'"\`(=])${escaped}(?=$|[\\s'"\`),;.!?])`, 'gi')
  const [before, after] = [/^\w/.test(value) ? '(?<!\\w)' : '', /\w$/.test(value) ? '(?!\\w)' : '']
  return new RegExp(`${before}${escaped}${after}`, 'gi')
}
