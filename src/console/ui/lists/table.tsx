// A list of texts that do not change once they are read: a row is identified by its place.

import { List, textColumn } from "./list.tsx";

type TableProps = {
  label: string;
  title: string;
  /** The titles of the columns, each with its width in fractions of the whole. */
  heads: Readonly<Record<string, number>>;
  rows: readonly (readonly (string | number)[])[];
  /** The text of an empty list. */
  empty?: string;
  /** These two are as in ListProps. */
  path?: string;
  part?: string;
};

export function Table({ heads, rows, empty = "None.", path = "", ...list }: TableProps) {
  const data = rows.map((texts, at) => ({ texts, at }));
  // Leaves out a column that is empty in all rows: it would only take room from the others.
  const columns = Object.entries(heads).flatMap(([title, width], place) =>
    rows.length > 0 && rows.every((texts) => texts[place] === "")
      ? []
      : textColumn(
          title.toLowerCase(),
          title,
          width,
          ({ texts }: (typeof data)[number]) => `${texts[place]}`,
        ),
  );
  return (
    <List
      {...list}
      path={path}
      empty={empty}
      read={{ data, error: undefined }}
      columns={columns}
      keyOf={({ at }) => at}
    />
  );
}
