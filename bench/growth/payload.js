const ITEM_BYTES = 51

/** An order with as many lines as make up about `bytes` bytes of JSON; no two are the same, so that they compress as orders do. */
export function payloadOfSize(id, bytes) {
  const order = { id, orderId: `ord_${String(id).padStart(12, '0')}`, currency: 'EUR', items: [] }
  const count = Math.max(0, Math.round((bytes - JSON.stringify(order).length) / ITEM_BYTES))
  for (let line = 0; line < count; line++) order.items.push(itemOf(id * 31 + line * 7919))
  return order
}

function itemOf(seed) {
  const mixed = Math.imul(seed ^ (seed >>> 15), 0x2c1b3c6d) >>> 0
  const digits = String(mixed).padStart(10, '0')
  return { sku: `SKU-${digits}`, quantity: 1 + (mixed % 9), price: 1000 + (mixed % 8999) }
}
