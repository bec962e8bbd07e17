// A table of any length: only the rows in sight are in the page.

import type { VNode } from "preact";
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { now } from "../../words/times.ts";
import { isNarrow } from "../narrow.ts";
import { inPlaces } from "./order.ts";
import { useVisible } from "./visible-rows.ts";

export type Column<T> = {
  key: string;
  title: string;
  /** In fractions of the width. */
  width: number;
  cell(item: T): VNode | string;
  /** Compares two rows. */
  compare?(a: T, b: T): number;
  /** With `compare`: true if the item has no value, so that it comes last either way. */
  isEmpty?(item: T): boolean;
  /** The column orders by `text`, numbers in it by their value: node-2 before node-10. Without this and `compare`, it cannot order. */
  isNatural?: true;
  /** With `isNatural`: the key to order by, where items keep it; otherwise it is made of `text`. */
  sortKey?(item: T): string;
  /** For the CSV export. A row that is in sight is marked for a moment where this changes. */
  text(item: T): string;
  /** The column changes all the time, so changes are not marked. */
  isRestless?: true;
  /** Stands at the right. */
  isNumber?: true;
};

/** The height in pixels of a row with buttons; a list without them has rows of 32. */
const lineHeight = 36;
/**
 * In pixels. On a phone, each row is a card: `brief` without buttons, `tall` with them. Cards in which cells have the titles of
 * their columns begin as `titled`, and grow as far as one of them needs.
 */
const cardHeight = { brief: 54, tall: 72, titled: 52 };
const cardPadding = 6;
/** A changed cell has this ground for `markMs`. It does not blink: text that is read must not move. */
const mark = { backgroundColor: ["var(--mark)", "var(--mark)"] };
const markMs = 2000;
/** Rows keep their places only after so long: a page first shows data of an earlier visit, which is then updated. */
const settleMs = 2000;

type Key = number | string;

type RowsProps<T> = {
  label: string;
  items: readonly T[];
  columns: readonly Column<T>[];
  keyOf(item: T): Key;
  /** The address of the row's page. */
  linkOf?: ((item: T) => string) | undefined;
  /** The key of the column to order by, after "-" the other way round; "": as `items` are. */
  order: string;
  setOrder(order: string): void;
  /**
   * While this key is the same, rows keep their places and new ones come at the end. Without it, they follow `items`.
   */
  held?: string;
  /** `items` is only a part, so that not all can be selected. */
  isPart?: boolean;
  selected?: ReadonlySet<Key>;
  select?(keys: ReadonlySet<Key>): void;
  /** On a phone, the cells have the titles of their columns before them. */
  isTitled?: boolean;
  height?: number;
  /** Opens an item beside the list, by a click anywhere on its row. Without it, the link of the row leads to the item's page. */
  open?: ((item: T) => void) | undefined;
  /** The key of the item that is open. While one is, each row that gets the focus is opened. */
  opened?: Key | undefined;
};

/**
 * A row that is in the page: while its item, its place and the epoch are the same, it is not drawn again. `epoch`: an object
 * that is another one when something changes on which all rows depend. `place`: its index in the list.
 */
type Drawn<T> = { item: T; place: number; epoch: { columns: readonly Column<T>[] }; view: VNode };

/** Items as rows, or as cards on a phone. `select` adds check boxes, `open` makes rows open beside the list. */
export function Rows<T>(props: RowsProps<T>) {
  const { label, columns, order, setOrder, select, isTitled = false, height = lineHeight } = props;
  const { rows: items, moved, sort } = useHeldPlaces(props);
  const body = useRef<HTMLDivElement>(null);
  const isCards = isNarrow.value;
  const [tallest, setTallest] = useState(cardHeight.titled);
  const untitled = height === lineHeight ? cardHeight.tall : cardHeight.brief;
  const heightOfCards = isTitled ? tallest : untitled;
  const rowHeight = isCards ? heightOfCards : height;
  const [from, to] = useVisible(body, items.length, rowHeight);
  // After each drawing: the tallest card decides the height of all.
  const measure = () => {
    const cards = isCards && isTitled ? [...(body.current?.children ?? [])] : [];
    const missing = Math.max(0, ...cards.map((each) => each.scrollHeight - each.clientHeight));
    if (missing > 0) setTallest((before) => before + missing + cardPadding);
  };
  useLayoutEffect(() => {
    measure();
    addEventListener("resize", measure);
    return () => removeEventListener("resize", measure);
  });
  const canSelect = select !== undefined;
  const template = useMemo(
    () => ({
      "--columns": `${canSelect ? "28px " : ""}${columns.map(({ width }) => `minmax(0,${width}fr)`).join(" ")}`,
      "--row": `${rowHeight}px`,
    }),
    [columns, canSelect, rowHeight],
  );
  const inSight = useDrawn({ ...props, items }, { from, to, rowHeight });
  const { click, follow } = openers(props, items);
  return (
    <>
      <div
        role="table"
        class={isCards ? `rows cards ${isTitled ? "titled" : "brief"}` : "rows"}
        style={template}
        aria-label={label}
        aria-rowcount={items.length + 1}
      >
        <div role="row" class="row head">
          {canSelect ? <SelectAll {...props} /> : null}
          {columns.map((column) => (
            <Head key={column.key} column={column} order={order} setOrder={setOrder} />
          ))}
        </div>
        <div
          role="rowgroup"
          ref={body}
          class={props.open === undefined ? "body" : "body opens"}
          style={{ height: `${items.length * rowHeight}px` }}
          onClick={props.open && click}
          onFocusIn={props.open && follow}
        >
          {inSight}
        </div>
      </div>
      {moved === 0 ? null : (
        <p class="newer moved">
          <button type="button" onClick={sort}>
            {moved} new or moved: sort again
          </button>
        </p>
      )}
    </>
  );
}

/** Opens rows beside the list: by a click, and by the focus while another one is open. `items`: in the order of the rows. */
function openers<T>({ open, opened }: RowsProps<T>, items: readonly T[]) {
  const itemOf = (target: EventTarget | null) => {
    const row = target instanceof Element ? target.closest("[aria-rowindex]") : null;
    // Rows count from 1, and the first is the head.
    return items[Number(row?.getAttribute("aria-rowindex")) - 2];
  };
  const click = (event: MouseEvent) => {
    const { target } = event;
    // A key that presses the link (`detail` 0) opens its page, and so does a click for a new tab.
    const isPlain = event.detail > 0 && !(event.ctrlKey || event.metaKey || event.shiftKey || event.altKey);
    const isOnControl = !(target instanceof Element) || target.closest("button, input, label") !== null;
    const item = itemOf(target);
    // A click that ends a selection of text opens nothing.
    if (!isPlain || isOnControl || item === undefined || getSelection()?.isCollapsed === false) return;
    event.preventDefault();
    target.closest("[role=row]")?.querySelector<HTMLElement>(".first a")?.focus({ preventScroll: true });
    open?.(item);
  };
  const follow = ({ target }: FocusEvent) => {
    const item = itemOf(target);
    const isLink = target instanceof Element && target.matches(".first a");
    if (item !== undefined && isLink && opened !== undefined) open?.(item);
  };
  return { click, follow };
}

function SelectAll<T>({ items, keyOf, isPart, selected, select }: RowsProps<T>) {
  const isSelected = (item: T) => selected?.has(keyOf(item)) === true;
  const isAll = useMemo(() => items.every(isSelected), [items, selected]);
  const isSome = useMemo(() => !isAll && items.some(isSelected), [items, selected]);
  const pickAll = () => {
    const keys = new Set(items.map(keyOf));
    select?.(new Set([...(selected ?? [])].filter((key) => !keys.has(key)).concat(isAll ? [] : [...keys])));
  };
  return (
    <div role="columnheader">
      <span class="unseen">Selected</span>
      <input
        type="checkbox"
        aria-label="Select all that are shown"
        disabled={isPart}
        checked={isAll}
        indeterminate={isSome}
        onClick={pickAll}
      />
    </div>
  );
}

type Sight = { from: number; to: number; rowHeight: number };

/** The rows in sight. */
function useDrawn<T>(props: RowsProps<T>, { from, to, rowHeight }: Sight): VNode[] {
  const { items, columns, keyOf, selected, opened } = props;
  const drawn = useRef(new Map<Key, Drawn<T>>());
  const newestPick = usePick(props);
  // `now`: rows may have relative times.
  const epoch = useMemo(() => ({ columns }), [now.value, columns, rowHeight, selected, opened]);
  const next = new Map<Key, Drawn<T>>();
  // Keeps the row object: Preact does not redraw the same object.
  const inSight = items.slice(from, to).map((item, index) => {
    const place = from + index;
    const key = keyOf(item);
    const before = drawn.current.get(key);
    const isSame = before?.item === item && before.place === place && before.epoch === epoch;
    const pick = (isRange: boolean) => newestPick.current(key, isRange);
    const view = isSame
      ? before.view
      : drawRow({ ...props, item, top: place * rowHeight, place, pick, before });
    next.set(key, { item, place, epoch, view });
    return view;
  });
  drawn.current = next;
  return inSight;
}

/** Rows that are being read stay where they are until the user sorts them again (`sort`). `moved`: how many are out of order. */
function useHeldPlaces<T>({ items, keyOf, held }: RowsProps<T>) {
  /** How often the places were forgotten: first when the list has settled, then by the user. */
  const [sorted, setSorted] = useState(0);
  useEffect(() => void setTimeout(setSorted, settleMs, 1), []);
  // Before that, and without `held`, each new array of items has new places.
  const places = useMemo(() => new Map<Key, number>(), [held, (held !== undefined && sorted) || items]);
  const inOrder = useMemo(() => inPlaces(items, keyOf, places), [items, places]);
  return { ...inOrder, sort: () => setSorted(sorted + 1) };
}

/**
 * Selects a row, or takes it out of the selection; with Shift (`isRange`), all from the row that was picked before it. In a ref,
 * because rows that are not drawn again keep their handlers, which call the newest version.
 */
function usePick<T>({ items, keyOf, selected, select }: RowsProps<T>) {
  const lastPicked = useRef<Key | undefined>(undefined);
  const pick = (key: Key, isRange: boolean) => {
    const keys = items.map(keyOf);
    const at = keys.indexOf(key);
    const last = isRange && lastPicked.current !== undefined ? keys.indexOf(lastPicked.current) : -1;
    const from = last === -1 ? at : last;
    const next = new Set(selected);
    const isAdding = !next.has(key);
    for (const each of keys.slice(Math.min(from, at), Math.max(from, at) + 1))
      if (isAdding) next.add(each);
      else next.delete(each);
    lastPicked.current = key;
    select?.(next);
  };
  const newest = useRef(pick);
  newest.current = pick;
  return newest;
}

type DrawProps<T> = Pick<RowsProps<T>, "columns" | "keyOf" | "linkOf" | "selected" | "select" | "opened"> & {
  item: T;
  place: number;
  /** In pixels. */
  top: number;
  pick(isRange: boolean): void;
  before: Drawn<T> | undefined;
};

/** Marks a cell for a moment. */
export const flash = (cell: HTMLElement | null) => void cell?.animate(mark, markMs);

function drawRow<T>({
  item,
  place,
  top,
  columns,
  keyOf,
  linkOf,
  selected,
  select,
  opened,
  pick,
  before,
}: DrawProps<T>): VNode {
  const key = keyOf(item);
  const href = linkOf?.(item);
  const isSelected = selected?.has(key) === true;
  const isOpen = key === opened;
  const isChanged = ({ key: name, text, isRestless }: Column<T>) => {
    // The columns of the former drawing: their texts may depend on what was known then.
    const columnBefore = before?.epoch.columns.find((column) => column.key === name);
    const textBefore = before && columnBefore?.text(before.item);
    // A value that was unknown before ("") has not changed.
    return (
      textBefore && isRestless !== true && columnBefore?.isRestless !== true && textBefore !== text(item)
    );
  };
  return (
    <div
      role="row"
      key={key}
      aria-rowindex={place + 2}
      class={isSelected || isOpen ? "row selected" : "row"}
      style={`top:${top}px`}
    >
      {select === undefined ? null : (
        <div role="cell" class="pick">
          <input
            type="checkbox"
            aria-label={`Select ${columns[0]?.text(item)}`}
            checked={isSelected}
            onClick={(event: MouseEvent) => pick(event.shiftKey)}
          />
        </div>
      )}
      {columns.map((column, at) => (
        <div
          role="cell"
          key={column.key}
          // A new function each time: Preact calls the same one only once for a cell.
          ref={isChanged(column) ? flash.bind(undefined) : null}
          class={`${at === 0 ? "first" : `c${at}`}${column.isNumber === true ? " num" : ""}`}
          data-column={column.key}
          data-title={column.title}
        >
          {at === 0 && href !== undefined ? (
            <a class="name" href={href} aria-current={isOpen ? "true" : undefined}>
              {column.cell(item)}
            </a>
          ) : (
            column.cell(item)
          )}
        </div>
      ))}
    </div>
  );
}

type HeadProps = { column: Column<never>; order: string; setOrder(order: string): void };

/** The title of a column. A click orders by it, a second one the other way round. */
function Head({ column: { key, title, compare, isNatural, isNumber }, order, setOrder }: HeadProps) {
  const directions = {
    [key]: { sort: "ascending", arrow: " ↑" },
    [`-${key}`]: { sort: "descending", arrow: " ↓" },
  } as const;
  const { sort, arrow } = directions[order] ?? { sort: "none", arrow: "" };
  const className = isNumber === true ? "num" : undefined;
  if (compare === undefined && isNatural !== true)
    return (
      <div role="columnheader" class={className}>
        {title}
      </div>
    );
  return (
    <div role="columnheader" aria-sort={sort} class={className}>
      <button type="button" class="plain" onClick={() => setOrder(order === key ? `-${key}` : key)}>
        {title}
        <span aria-hidden="true">{arrow}</span>
      </button>
    </div>
  );
}
