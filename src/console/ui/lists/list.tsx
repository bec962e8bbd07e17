// A list of an organization's objects: search and order in the address, export, and the same from the terminal.

import type { ComponentChildren } from "preact";
import type { ApiError } from "../../contact/api.ts";
import { currentSlug } from "../../contact/me.ts";
import { useList } from "../../contact/resource.ts";
import { query, setQuery } from "../../frame/router.ts";
import type { Words } from "../../words/terminal.ts";
import { Panel, TerminalButton } from "../page.tsx";
import type { StateName } from "../../nodes/states.ts";
import { Empty, Loading, State } from "../parts.tsx";
import { ordered } from "./order.ts";
import { Rows, type Column } from "./rows.tsx";
import { Export, Search, searched } from "./tools.tsx";

type ListProps<T> = {
  label: string;
  /** In the head of the panel. Without it, the tools stand above the panel, and the page has the title. */
  title?: string;
  /** The path of the API, without a query. */
  path: string;
  columns: readonly Column<T>[];
  keyOf(item: T): number;
  linkOf?: ((item: T) => string) | undefined;
  /** The text of an empty list. */
  empty: string;
  /** The line of `agent admin` with the same list; absent where the page's title offers it already. */
  command?: Words;
  /** What the page has read of the list; without it, all of the list is read from `path`. */
  read?: { data: readonly T[] | undefined; error: ApiError | undefined };
  /** On a phone, rows are two lines: the columns are few enough for that. */
  isShort?: boolean;
  /** Prefix of the parameters of the page's address, on a page with several lists. */
  part?: string;
  /** Of a row on a wide screen, in pixels: as `Rows` has it. */
  height?: number;
  /** Beside the search: buttons, or what the list says as a whole. */
  children?: ComponentChildren;
};

/** A list with search, export and rows, of one resource. */
export function List<T>(props: ListProps<T>) {
  const { label, title, path, columns, keyOf, linkOf, empty, command, read, part = "", children } = props;
  const { isShort = false, height } = props;
  const wholeList = useList<T>(read === undefined ? `${path}?page_size=1000` : "");
  const { data, error } = read ?? wholeList;
  if (data === undefined) return <Loading error={error} />;
  const order = query.value.get(`${part}order`) ?? "";
  const isFound = searched(`${part}search`);
  const found = data.filter((item) => isFound(columns.map(({ text }) => text(item)).join(" ")));
  const shown = ordered(found, columns, order);
  const isInHead = title !== undefined;
  const search = (
    <Search label={`Search ${label.toLowerCase()}`} name={`${part}search`} isFolded={isInHead} />
  );
  const tools = (
    <>
      <Export
        file={`${[currentSlug.value, ...label.toLowerCase().split(" ")].filter(Boolean).join("-")}.csv`}
        items={shown}
        columns={columns}
        isSmall={true}
      />
      {command === undefined ? null : <TerminalButton command={command} call={["GET", path]} />}
    </>
  );
  const rows =
    shown.length > 0 ? (
      <Rows
        label={label}
        items={shown}
        columns={columns}
        keyOf={keyOf}
        linkOf={linkOf}
        order={order}
        setOrder={(next: string) => setQuery({ [`${part}order`]: next })}
        isTitled={!isShort}
        {...(height !== undefined && { height })}
      />
    ) : (
      <div class="in">
        <Empty text={data.length === 0 ? empty : "Nothing has all these words."} />
      </div>
    );
  if (isInHead)
    return (
      <Panel
        title={title}
        actions={
          <>
            {data.length > 0 ? search : null}
            {tools}
            {children}
          </>
        }
      >
        {rows}
      </Panel>
    );
  return (
    <>
      <div class="group">
        {search}
        <span class="spring" />
        {children}
        {tools}
      </div>
      <Panel>{rows}</Panel>
    </>
  );
}

/** A column of texts that users chose. */
export function textColumn<T>(
  key: string,
  title: string,
  width: number,
  text: (item: T) => string,
): Column<T> {
  return {
    key,
    title,
    width,
    text,
    cell: (item) => <bdi title={text(item)}>{text(item)}</bdi>,
    isNatural: true,
  };
}

/** A column of names that lead somewhere. */
export function linkColumn<T>(
  key: string,
  title: string,
  width: number,
  text: (item: T) => string,
  to: (item: T) => string,
): Column<T> {
  const cell = (item: T) => (
    <a href={to(item)}>
      <bdi>{text(item)}</bdi>
    </a>
  );
  return { key, title, width, text, cell };
}

/** A column of states. */
export function stateColumn<T>(width: number, of: (item: T) => readonly [StateName, string]): Column<T> {
  const cell = (item: T) => <State name={of(item)[0]} word={of(item)[1]} />;
  return { key: "state", title: "State", width, text: (item) => of(item)[1], cell };
}

/** A column of buttons. */
export function actionsColumn<T>(width: number, cell: Column<T>["cell"]): Column<T> {
  return { key: "actions", title: "Actions", width, text: () => "", cell };
}
