// The tools above a list: a search, whose words are in the address, and an export of what is shown.

import { useState } from "preact/hooks";
import { query, setQuery } from "../../frame/router.ts";
import { hasWords, searchWords } from "../../words/search.ts";
import { Button } from "../button.tsx";
import { toCsv, type CsvColumn } from "./csv.ts";
import { useAction } from "../form.tsx";
import { Icon } from "../icon.tsx";
import { valueOf } from "../field.tsx";

type SearchProps = {
  label: string;
  /** The parameter of the address that keeps the words. */
  name?: string;
  placeholder?: string;
  /** An icon alone until it is used. */
  isFolded?: boolean;
};

/** The search of a list, kept in the address as `?search=`. */
export function Search({ label, name = "search", placeholder = "Search", isFolded = false }: SearchProps) {
  return (
    <label class={isFolded ? "search folded" : "search w240"}>
      <Icon name="search" />
      <input
        type="search"
        aria-label={label}
        title={isFolded ? `${label} (/)` : undefined}
        placeholder={placeholder}
        value={query.value.get(name) ?? ""}
        onInput={(event: Event) => setQuery({ [name]: valueOf(event) })}
      />
      {name === "search" && !isFolded ? <kbd>/</kbd> : null}
    </label>
  );
}

/** Whether a text has every word that the user searches. */
export function searched(name = "search"): (text: string) => boolean {
  const words = searchWords(query.value.get(name) ?? "");
  return (text) => hasWords(text, words);
}

type ExportProps<T> = { file: string; items: readonly T[]; columns: readonly CsvColumn<T>[] };

/** `isPart`: there is more than `items`. `isSmall`: in the head of a panel. */
export function Export<T>({
  file,
  items,
  columns,
  isPart,
  isSmall,
}: ExportProps<T> & { isPart?: boolean; isSmall?: boolean }) {
  const save = () => download(file, toCsv(items, columns), "text/csv");
  return (
    <Button
      kind={isSmall === true ? "ghost" : undefined}
      isSmall={isSmall}
      icon="download"
      label="Export CSV"
      disabled={isPart}
      onClick={save}
    />
  );
}

/** For a page that has only a part of the export: `read` reads all of it. `tell`: reports how many were read. */
type ReadingProps<T> = { read(tell: (count: number) => void): Promise<ExportProps<T>> };

/** A CSV file of items that are read when it is asked for. */
export function ReadingExport<T>({ read }: ReadingProps<T>) {
  const [count, setCount] = useState(0);
  const { error, isRunning, run } = useAction(async () => {
    setCount(0);
    const { file, items, columns } = await read(setCount);
    download(file, toCsv(items, columns), "text/csv");
  });
  return (
    <>
      <Button icon="download" label="Export CSV" disabled={isRunning} onClick={run}>
        {isRunning ? `Reading: ${count}…` : undefined}
      </Button>
      {error === undefined ? null : (
        <span class="bad" role="alert">
          No file was made: {error.message}
        </span>
      )}
    </>
  );
}

/** Lets the browser download a file. */
export function download(name: string, text: string, type: string): void {
  const url = URL.createObjectURL(new Blob([text], { type }));
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  // Revoke the URL later: an iPhone asks the user first, and reads the file after the answer.
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}
