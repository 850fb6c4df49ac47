import { describe, expect, it } from 'vitest'
import { wrap, wrapBehind } from './wrap.js'

describe('wrap', () => {
  it('fills lines up to the width', () => {
    expect(wrap('aa bb cc dd', 5)).toEqual(['aa bb', 'cc dd'])
    expect(wrap('aa bb cc dd', 4)).toEqual(['aa', 'bb', 'cc', 'dd'])
  })

  it('gives a word that is longer than the width a line of its own', () => {
    expect(wrap('a very-long-word b', 6)).toEqual(['a', 'very-long-word', 'b'])
  })

  it('treats line breaks and repeated spaces as one space', () => {
    expect(wrap('a\n b  c', 80)).toEqual(['a b c'])
    expect(wrap('', 80)).toEqual([''])
  })

  it('counts wide characters as two cells', () => {
    expect(wrap('日本 日本', 8)).toEqual(['日本', '日本'])
    expect(wrap('日本 日本', 9)).toEqual(['日本 日本'])
  })
})

describe('wrapBehind', () => {
  it('indents the lines after the first by the width of the head', () => {
    expect(wrapBehind('  -x  ', 'aa bb cc', 11)).toEqual(['  -x  aa bb', '      cc'])
  })

  it('puts the first word behind the head even if it is too long', () => {
    expect(wrapBehind('head ', 'long-word b', 8)).toEqual(['head long-word', '     b'])
  })
})
