/** `*`, or a name that ends in `.*`: that prefix, at any depth. */
export function isPattern(eventType: string): boolean {
  return eventType === '*' || eventType.endsWith('.*')
}

/** A pattern also covers a narrower pattern. */
export function covers(route: string, eventType: string): boolean {
  return isPattern(route) ? eventType.startsWith(prefixOf(route)) : route === eventType
}

export function prefixOf(pattern: string): string {
  return pattern.slice(0, -1)
}
