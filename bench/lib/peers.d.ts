export function peersOf(
  bars: readonly string[],
): { peer: string; bars: string[]; configuration: string; why: string }[]
