/** About 250 bytes of JSON, as an order event would carry. */
export function payloadOf(id) {
  return {
    id,
    orderId: `ord_${String(id).padStart(12, '0')}`,
    customer: { id: `cus_${(id * 7919) % 100_000}`, email: `customer${id % 1000}@example.com` },
    total: 1999 + (id % 500),
    currency: 'EUR',
    items: [
      { sku: 'SKU-1001', quantity: 1 + (id % 3) },
      { sku: 'SKU-2044', quantity: 2 },
    ],
    note: 'leave at the door, thank you',
  }
}

export const TYPE = 'order.placed'

/** The application's own table, and what one business transaction writes into it. */
export const ORDERS =
  'create table orders (id bigint primary key, customer text not null, total int not null)'

export function insertOrder(payload) {
  return {
    name: 'bench-insert-order',
    text: 'insert into orders (id, customer, total) values ($1, $2, $3)',
    values: [payload.id, payload.customer.id, payload.total],
  }
}
