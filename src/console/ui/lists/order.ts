// The order of a list by one of its columns. Pure.

type Ordering<T> = {
  key: string;
  text(item: T): string;
  compare?(a: T, b: T): number;
  /** Whether the item comes last in either order. */
  isEmpty?(item: T): boolean;
  /** Ordered by `naturalKey`: node-2 before node-10. Then neither `compare` nor `isEmpty` is used. */
  isNatural?: true;
  /** With `isNatural`: the key to order by, where items keep it; otherwise it is made of `text`. */
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

/**
 * The items at their known places, and new ones behind them; updates `places`. `moved`: how many are out of order,
 * counted as the fewest that have to move.
 */
export function inPlaces<T, K>(
  items: readonly T[],
  keyOf: (item: T) => K,
  places: Map<K, number>,
): { rows: readonly T[]; moved: number } {
  const rows: (T | undefined)[] = Array.from({ length: places.size });
  // The items that need not move are a longest increasing subsequence of places (patience sorting): `ends[n]` is the least last
  // place of such a subsequence of n + 1 items.
  const ends: number[] = [];
  for (const item of items) {
    const key = keyOf(item);
    const place = places.get(key) ?? places.size;
    places.set(key, place);
    rows[place] = item;
    let low = 0;
    let high = ends.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((ends[middle] ?? 0) < place) low = middle + 1;
      else high = middle;
    }
    ends[low] = place;
  }
  const moved = items.length - ends.length;
  return { rows: moved === 0 ? items : rows.filter((row) => row !== undefined), moved };
}

/**
 * A key whose order is the natural one: node-2 before node-10. Comparing ten thousand names by the rules of a language takes a
 * second, comparing these keys a few milliseconds.
 */
export function naturalKey(text: string): string {
  return text.toLowerCase().replace(/\d+/g, (digits) => digits.padStart(12, "0"));
}

const maxKeys = 50_000;
const naturalKeys = new Map<string, string>();

/** The natural key of a text, kept from the last time. */
function keptKey(text: string): string {
  const known = naturalKeys.get(text);
  if (known !== undefined) return known;
  const key = naturalKey(text);
  if (naturalKeys.size >= maxKeys) naturalKeys.clear();
  naturalKeys.set(text, key);
  return key;
}
