// The order of a list by one of its columns. Pure.

type Ordering<T> = {
  key: string;
  text(item: T): string;
  compare?(a: T, b: T): number;
  /** Comes last either way. */
  isEmpty?(item: T): boolean;
  isNatural?: true;
  /** Instead of the key of `text`, where items keep theirs. */
  sortKey?(item: T): string;
};

/** The items in the order that the address names: `name`, or `-name` for the other way round. */
export function ordered<T>(
  items: readonly T[],
  columns: readonly Ordering<T>[],
  order: string,
): readonly T[] {
  const isDown = order.startsWith("-");
  const column = columns.find(({ key }) => key === (isDown ? order.slice(1) : order));
  if (column?.isNatural === true) {
    const keyOf = column.sortKey ?? ((item: T) => keptKey(column.text(item)));
    const keyed = items.map((item) => ({ item, key: keyOf(item) }));
    keyed.sort((a, b) => (a.key < b.key ? -1 : a.key > b.key ? 1 : 0));
    if (isDown) keyed.reverse();
    return keyed.map(({ item }) => item);
  }
  const compare = column?.compare;
  if (compare === undefined) return items;
  const isEmpty = (item: T) => Number(column?.isEmpty?.(item) === true);
  return items.toSorted((a, b) => isEmpty(a) - isEmpty(b) || (isDown ? compare(b, a) : compare(a, b)));
}

/** Comparing ten thousand names by the rules of a language takes a second, comparing these a few milliseconds. */
export function naturalKey(text: string): string {
  return text.toLowerCase().replace(/\d+/g, (digits) => digits.padStart(12, "0"));
}

const maxKeys = 50_000;
const naturalKeys = new Map<string, string>();

function keptKey(text: string): string {
  const known = naturalKeys.get(text);
  if (known !== undefined) return known;
  const key = naturalKey(text);
  if (naturalKeys.size >= maxKeys) naturalKeys.clear();
  naturalKeys.set(text, key);
  return key;
}
