// A table of any length: only the rows in sight are in the page.

import type { VNode } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { html } from "../html.ts";

export type Column<T> = {
  key: string;
  title: string;
  /** In fractions of the width. */
  width: number;
  cell(item: T): VNode | string;
  /** Compares two rows. */
  compare?(a: T, b: T): number;
  /** Orders by `text`, numbers by their value: node-2 before node-10. Without it and `compare`, the column cannot order. */
  isNatural?: true;
  /** For the CSV export. */
  text(item: T): string;
};

const rowHeight = 36;
/** Rows above and below what is in sight, so that scrolling shows no gaps. */
const margin = 12;

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
};

/** The rows that are in the page, so that scrolling makes only those that come into sight. */
type DrawnRow = { at: number; selected: unknown; view: VNode };
type Drawn<T> = { items: readonly T[]; columns: readonly Column<T>[]; rows: Map<T, DrawnRow> };

export function Rows<T>(props: RowsProps<T>) {
  const { label, items, columns, keyOf, linkOf, order, setOrder, selected, select } = props;
  const body = useRef<HTMLDivElement>(null);
  const [from, to] = useVisible(body, items.length);
  const lastPicked = useRef<number | undefined>(undefined);
  const canSelect = select !== undefined;
  const template = useMemo(
    () => ({
      gridTemplateColumns: `${canSelect ? "28px " : ""}${columns.map(({ width }) => `minmax(0,${width}fr)`).join(" ")}`,
    }),
    [columns, canSelect],
  );
  const drawn = useRef<Drawn<T>>({ items, columns, rows: new Map() });
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
  const row = (item: T, at: number) => {
    const key = keyOf(item);
    const href = linkOf?.(item);
    return html`<div
      role="row"
      key=${key}
      aria-rowindex=${at + 2}
      class=${selected?.has(key) === true ? "row selected" : "row"}
      style=${{ ...template, top: `${at * rowHeight}px` }}
    >
      ${
        select === undefined
          ? null
          : html`<div role="cell">
              <input
                type="checkbox"
                aria-label="Select"
                checked=${selected?.has(key) === true}
                onClick=${(event: MouseEvent) => pick(at, event.shiftKey)}
              />
            </div>`
      }
      ${columns.map(
        ({ key: name, cell }, column) =>
          html`<div role="cell" key=${name}>
            ${column === 0 && href !== undefined ? html`<a href=${href}>${cell(item)}</a>` : cell(item)}
          </div>`,
      )}
    </div>`;
  };
  const isCurrent = drawn.current.items === items && drawn.current.columns === columns;
  const known = isCurrent ? drawn.current.rows : new Map<T, DrawnRow>();
  const next: Drawn<T> = { items, columns, rows: new Map() };
  // Preact leaves a row alone that is the same object as before.
  const inSight = items.slice(from, to).map((item, index) => {
    const at = from + index;
    const before = known.get(item);
    const isSame = before?.at === at && before.selected === selected;
    const view = isSame ? before.view : row(item, at);
    next.rows.set(item, { at, selected, view });
    return view;
  });
  drawn.current = next;
  return html`<div role="table" class="rows" aria-label=${label} aria-rowcount=${items.length + 1}>
    <div role="row" class="row head" style=${template}>
      ${select === undefined ? null : html`<div role="columnheader"><span class="unseen">Selected</span></div>`}
      ${columns.map((column) => html`<${Head} key=${column.key} column=${column} order=${order} setOrder=${setOrder} />`)}
    </div>
    <div role="rowgroup" ref=${body} class="body" style=${{ height: `${items.length * rowHeight}px` }}>
      ${inSight}
    </div>
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
function useVisible(body: { readonly current: HTMLDivElement | null }, count: number): [number, number] {
  const [range, setRange] = useState<[number, number]>([0, 40]);
  useEffect(() => {
    const look = () => {
      const top = body.current?.getBoundingClientRect().top ?? 0;
      const first = Math.max(0, Math.floor(-top / rowHeight) - margin);
      const last = Math.min(count, Math.ceil((innerHeight - top) / rowHeight) + margin);
      setRange((before) => (before[0] === first && before[1] === last ? before : [first, last]));
    };
    look();
    addEventListener("scroll", look, { passive: true });
    addEventListener("resize", look);
    return () => {
      removeEventListener("scroll", look);
      removeEventListener("resize", look);
    };
  }, [count]);
  return range;
}
