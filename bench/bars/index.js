import * as B1 from './b1.js'
import * as B2 from './b2.js'
import * as B3 from './b3.js'
import * as B4 from './b4.js'
import * as B5 from './b5.js'
import * as B6 from './b6.js'
import * as B8 from './b8.js'
import * as B9 from './b9.js'
import * as B11 from './b11.js'
import * as B12 from './b12.js'
import * as B13 from './b13.js'
import * as R1 from './r1.js'

export const bars = { B1, B2, B3, B4, B5, B6, B8, B9, B11, B12, B13, R1 }
