// A table of any length: only the rows in sight are in the page.

import type { VNode } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { html } from "../html.ts";
import { now } from "../times.ts";
import { isNarrow } from "./narrow.ts";

export type Column<T> = {
  key: string;
  title: string;
  /** In fractions of the width. */
  width: number;
  cell(item: T): VNode | string;
  /** Compares two rows. */
  compare?(a: T, b: T): number;
  /** With `compare`: it has nothing to compare, and comes last either way. */
  isEmpty?(item: T): boolean;
  /** Orders by `text`, numbers by their value: node-2 before node-10. Without it and `compare`, the column cannot order. */
  isNatural?: true;
  /** The key that orders naturally, where items keep it; otherwise it is made of `text`. */
  sortKey?(item: T): string;
  /** For the CSV export. */
  text(item: T): string;
};

const lineHeight = 36;
/** On a phone, each row is a card of two lines; of more, if it has many columns with their titles. */
const cardHeightOf = (titled: number) => (titled <= 3 ? 60 : titled <= 7 ? 84 : 124);
/** Rows above and below what is in sight, so that scrolling shows no gaps. */
const margin = 6;
const restMs = 100;

type RowsProps<T> = {
  label: string;
  items: readonly T[];
  columns: readonly Column<T>[];
  keyOf(item: T): number | string;
  /** The address of the row's page. */
  linkOf?(item: T): string;
  order: string;
  setOrder(order: string): void;
  selected?: ReadonlySet<number | string>;
  select?(keys: ReadonlySet<number | string>): void;
  /** On a phone, the cells have the titles of their columns before them. */
  isTitled?: boolean;
};

/** The rows that are in the page, so that scrolling makes only those that come into sight. */
type DrawnRow = { at: number; selected: unknown; view: VNode };
type Drawn<T> = { columns: readonly Column<T>[]; isCards: boolean; at: number; rows: Map<T, DrawnRow> };

export function Rows<T>(props: RowsProps<T>) {
  const { label, items, columns, keyOf, order, setOrder, selected, select, isTitled = false } = props;
  const body = useRef<HTMLDivElement>(null);
  const isCards = isNarrow.value;
  const cardHeight = cardHeightOf(isTitled ? columns.length : 0);
  const rowHeight = isCards ? cardHeight : lineHeight;
  const [from, to] = useVisible(body, items.length, rowHeight);
  const canSelect = select !== undefined;
  const template = useMemo(
    () => ({
      "--columns": `${canSelect ? "28px " : ""}${columns.map(({ width }) => `minmax(0,${width}fr)`).join(" ")}`,
      "--card": `${cardHeight}px`,
    }),
    [columns, canSelect, cardHeight],
  );
  const isSelected = (item: T) => selected?.has(keyOf(item)) === true;
  const isAll = useMemo(() => items.every(isSelected), [items, selected]);
  const isSome = useMemo(() => !isAll && items.some(isSelected), [items, selected]);
  const pickAll = () => {
    const keys = new Set(items.map(keyOf));
    select?.(new Set([...(selected ?? [])].filter((key) => !keys.has(key)).concat(isAll ? [] : [...keys])));
  };
  // Relative times in cells follow it.
  const at = now.value;
  const drawn = useRef<Drawn<T>>({ columns, isCards, at, rows: new Map() });
  const newest = usePick(props);
  const row = (item: T, place: number) =>
    drawRow({
      ...props,
      item,
      top: place * rowHeight,
      place,
      pick: (isRange) => newest.current(place, isRange),
    });
  const { current: last } = drawn;
  const isCurrent = last.at === at && last.columns === columns && last.isCards === isCards;
  const known = isCurrent ? last.rows : new Map<T, DrawnRow>();
  const next: Drawn<T> = { columns, isCards, at, rows: new Map() };
  // Preact leaves a row alone that is the same object as before.
  const inSight = items.slice(from, to).map((item, index) => {
    const place = from + index;
    const before = known.get(item);
    const isSame = before?.at === place && before.selected === selected;
    const view = isSame ? before.view : row(item, place);
    next.rows.set(item, { at: place, selected, view });
    return view;
  });
  drawn.current = next;
  return html`<div
    role="table"
    class=${`rows${isCards ? " cards" : ""}${isTitled ? " titled" : ""}`}
    style=${template}
    aria-label=${label}
    aria-rowcount=${items.length + 1}
  >
    <div role="row" class="row head">
      ${
        select === undefined
          ? null
          : html`<div role="columnheader">
              <span class="unseen">Selected</span>
              <input
                type="checkbox"
                aria-label="Select all that are shown"
                checked=${isAll}
                indeterminate=${isSome}
                onClick=${pickAll}
              />
            </div>`
      }
      ${columns.map((column) => html`<${Head} key=${column.key} column=${column} order=${order} setOrder=${setOrder} />`)}
    </div>
    <div role="rowgroup" ref=${body} class="body" style=${{ height: `${items.length * rowHeight}px` }}>
      ${inSight}
    </div>
  </div>`;
}

/** Selects the row of a place; with Shift, all from the row before it that was selected. */
function usePick<T>({ items, keyOf, selected, select }: RowsProps<T>) {
  const lastPicked = useRef<number | undefined>(undefined);
  const pick = (at: number, isRange: boolean) => {
    const next = new Set(selected);
    const first = isRange && lastPicked.current !== undefined ? Math.min(lastPicked.current, at) : at;
    const last = isRange && lastPicked.current !== undefined ? Math.max(lastPicked.current, at) : at;
    const isAdding = !next.has(keyAt(items, at, keyOf));
    for (let each = first; each <= last; each++) {
      const key = keyAt(items, each, keyOf);
      if (isAdding) next.add(key);
      else next.delete(key);
    }
    lastPicked.current = at;
    select?.(next);
  };
  // A row that is drawn already asks the newest.
  const newest = useRef(pick);
  newest.current = pick;
  return newest;
}

type DrawProps<T> = Pick<RowsProps<T>, "columns" | "keyOf" | "linkOf" | "selected" | "select"> & {
  item: T;
  place: number;
  /** In pixels. */
  top: number;
  pick(isRange: boolean): void;
};

function drawRow<T>({
  item,
  place,
  top,
  columns,
  keyOf,
  linkOf,
  selected,
  select,
  pick,
}: DrawProps<T>): VNode {
  const key = keyOf(item);
  const href = linkOf?.(item);
  const isSelected = selected?.has(key) === true;
  return html`<div
    role="row"
    key=${key}
    aria-rowindex=${place + 2}
    class=${isSelected ? "row selected" : "row"}
    style=${`top:${top}px`}
  >
    ${
      select === undefined
        ? null
        : html`<div role="cell">
            <input
              type="checkbox"
              aria-label="Select"
              checked=${isSelected}
              onClick=${(event: MouseEvent) => pick(event.shiftKey)}
            />
          </div>`
    }
    ${columns.map(
      ({ key: name, title, cell }, column) =>
        html`<div
          role="cell"
          key=${name}
          class=${column === 0 ? "first" : ""}
          data-column=${name}
          data-title=${title}
        >
          ${column === 0 && href !== undefined ? html`<a href=${href}>${cell(item)}</a>` : cell(item)}
        </div>`,
    )}
  </div>`;
}

function keyAt<T>(items: readonly T[], at: number, keyOf: (item: T) => number | string): number | string {
  const item = items[at];
  return item === undefined ? "" : keyOf(item);
}

type HeadProps = { column: Column<never>; order: string; setOrder(order: string): void };

/** The title of a column. A click orders by it, a second one the other way round. */
function Head({ column: { key, title, compare, isNatural }, order, setOrder }: HeadProps) {
  const isUp = order === key;
  const isDown = order === `-${key}`;
  const direction = isUp ? "ascending" : isDown ? "descending" : "none";
  if (compare === undefined && isNatural !== true) return html`<div role="columnheader">${title}</div>`;
  return html`<div role="columnheader" aria-sort=${direction}>
    <button type="button" class="plain" onClick=${() => setOrder(isUp ? `-${key}` : key)}>
      ${title}<span aria-hidden="true">${isUp ? " ↑" : isDown ? " ↓" : ""}</span>
    </button>
  </div>`;
}

/** The rows in sight of the window: first and behind the last. */
function useVisible(
  body: { readonly current: HTMLDivElement | null },
  count: number,
  rowHeight: number,
): [number, number] {
  const [range, setRange] = useState<[number, number]>(() => [
    0,
    Math.ceil(innerHeight / rowHeight) + margin,
  ]);
  useEffect(() => {
    let drawn: [number, number] = [0, 0];
    let rest: ReturnType<typeof setTimeout> | undefined;
    const look = () => {
      const top = body.current?.getBoundingClientRect().top ?? 0;
      const first = Math.max(0, Math.floor(-top / rowHeight));
      const last = Math.min(count, Math.ceil((innerHeight - top) / rowHeight));
      // Far from what is drawn, all rows are new: first those in sight, and those around them once scrolling rests.
      const isFar = first >= drawn[1] || last <= drawn[0];
      const around = isFar && drawn[1] > 0 ? 0 : margin;
      clearTimeout(rest);
      if (around === 0) rest = setTimeout(look, restMs);
      drawn = [Math.max(0, first - around), Math.min(count, last + around)];
      const [from, to] = drawn;
      setRange((before) => (before[0] === from && before[1] === to ? before : [from, to]));
    };
    look();
    addEventListener("scroll", look, { passive: true });
    addEventListener("resize", look);
    // What is above may have closed, such as the menu on a phone.
    const sizes = new ResizeObserver(look);
    sizes.observe(document.body);
    return () => {
      clearTimeout(rest);
      sizes.disconnect();
      removeEventListener("scroll", look);
      removeEventListener("resize", look);
    };
  }, [count, rowHeight]);
  return range;
}
