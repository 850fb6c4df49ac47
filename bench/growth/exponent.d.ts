export function exponent(points: readonly (readonly [size: number, cost: number])[]): number
