import { defineEvent } from 'aftercommit'

export const OrderPlaced = defineEvent<{ orderId: string; total: number }>('order.placed')
