// A list of an organization's objects: search and order in the address, export, and the same from the terminal.

import type { ComponentChildren } from "preact";
import type { ApiError } from "../api.ts";
import { slug } from "../me.ts";
import { useList } from "../resource.ts";
import { query, setQuery } from "../router.ts";
import type { Words } from "../terminal.ts";
import { Empty, Failure, FromTerminal, Loading } from "./parts.tsx";
import { ordered } from "./order.ts";
import { Rows, type Column } from "./rows.tsx";
import { Export, Search, searched } from "./tools.tsx";

type ListProps<T> = {
  label: string;
  /** The path of the API, without a query. */
  path: string;
  columns: readonly Column<T>[];
  keyOf(item: T): number;
  linkOf?: ((item: T) => string) | undefined;
  /** The text of an empty list. */
  empty: string;
  command: Words;
  /** The part of the list that the page has read; without it, all of the list is read. */
  read?: { data: readonly T[] | undefined; error: ApiError | undefined };
  /** Begins the words of the query, where a page has several lists. */
  part?: string;
  /** Buttons beside the search. */
  children?: ComponentChildren;
};

export function List<T>(props: ListProps<T>) {
  const { label, path, columns, keyOf, linkOf, empty, command, read, part = "", children } = props;
  const all = useList<T>(read === undefined ? `${path}?page_size=1000` : "");
  const { data, error } = read ?? all;
  if (data === undefined) return error === undefined ? <Loading /> : <Failure error={error} />;
  const order = query.value.get(`${part}order`) ?? "";
  const isFound = searched(`${part}search`);
  const found = data.filter((item) => isFound(columns.map(({ text }) => text(item)).join(" ")));
  const shown = ordered(found, columns, order);
  const rows = (
    <Rows
      label={label}
      items={shown}
      columns={columns}
      keyOf={keyOf}
      linkOf={linkOf}
      order={order}
      setOrder={(next: string) => setQuery({ [`${part}order`]: next })}
      isTitled={true}
    />
  );
  return (
    <>
      <div class="tools">
        <Search label={`Search ${label.toLowerCase()}`} name={`${part}search`} />
        {children}
        <Export
          file={`${[slug.value, ...label.toLowerCase().split(" ")].filter(Boolean).join("-")}.csv`}
          items={shown}
          columns={columns}
        />
      </div>
      {shown.length > 0 ? (
        <div class="wide">
          <div class="least">{rows}</div>
        </div>
      ) : (
        <Empty text={data.length === 0 ? empty : "Nothing has all these words."} />
      )}
      <FromTerminal command={command} call={["GET", path]} />
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
