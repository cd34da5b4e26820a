// The beginning of a long text, for lists and tables.

/** At most `unitsMax` units of UTF-16 of the text, and an ellipsis if it is longer. No character is cut in two. */
export function beginningOf(text: string, unitsMax: number): string {
  if (text.length <= unitsMax) return text;
  const last = text.charCodeAt(unitsMax - 1);
  const isFirstHalf = last >= 0xd800 && last <= 0xdbff;
  return `${text.slice(0, isFirstHalf ? unitsMax - 1 : unitsMax)}…`;
}
