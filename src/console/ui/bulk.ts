// One action on several machines: asked once, carried out for each, and each that is refused is named.

import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { ApiError } from "../api.ts";
import { html } from "../html.ts";
import { Dialog, Field, valueOf } from "./parts.ts";
import { tell as confirm } from "./told.ts";

export type Item = { id: number; name: string };
type Failed = { name: string; why: string };

/** Requests at the same time. */
const atOnce = 6;
const maxNamed = 50;

/** The first one alone: it may ask for a fresh second factor. `tell`: how many are done. */
export async function runEach<T extends Item>(
  items: readonly T[],
  run: (item: T) => Promise<unknown>,
  tell: (done: number) => void,
  signal: AbortSignal,
): Promise<Failed[]> {
  const failed: Failed[] = [];
  let done = 0;
  const one = async (item: T) => {
    try {
      await run(item);
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      failed.push({ name: item.name, why: error.message });
    }
    tell(++done);
  };
  const left = [...items];
  const worker = async () => {
    for (let item = left.shift(); item !== undefined && !signal.aborted; item = left.shift()) await one(item);
  };
  const first = left.shift();
  if (first !== undefined) await one(first);
  await Promise.all(Array.from({ length: atOnce }, worker));
  return failed;
}

type BulkProps<T extends Item> = {
  title: string;
  /** What it does, in the button: "Revoke 3 machines". */
  action: string;
  items: readonly T[];
  isDanger?: boolean;
  /** The number of machines is typed first, if there are several. */
  asksCount?: boolean;
  /** False: `title` or `children` name the items. */
  hasNames?: boolean;
  run(item: T): Promise<unknown>;
  /** After all of them. */
  after(): Promise<void>;
  close(): void;
  /** The effect, fields, and the same from the terminal. */
  children: ComponentChildren;
};

export function Bulk<T extends Item>(props: BulkProps<T>) {
  const { isDanger = false, hasNames = true, run, after, close, children } = props;
  // What was asked stays the question, although the list changes meanwhile.
  const [{ title, action, items: asked }] = useState(props);
  const asksCount = props.asksCount === true && asked.length > 1;
  const [typed, type] = useState("");
  const [done, tell] = useState<number | undefined>(undefined);
  const [failed, fail] = useState<readonly Failed[]>([]);
  const over = useRef(new AbortController());
  useEffect(() => () => over.current.abort(), []);
  const submit = async (event: Event) => {
    event.preventDefault();
    tell(0);
    const refused = await runEach(asked, run, tell, over.current.signal);
    // Cancelled meanwhile: not all of it is done.
    if (over.current.signal.aborted) return;
    // The new list may be too short for a question about several.
    await after();
    if (refused.length > 0)
      return over.current.signal.aborted ? confirm(`${action}: ${refused.length} refused.`) : fail(refused);
    close();
    confirm(`${action}: done.`);
  };
  const isRunning = done !== undefined && done < asked.length;
  const isOver = done !== undefined && !isRunning;
  // It is no question any more, and its effect lies behind.
  const hasFailed = failed.length > 0;
  return html`<${Dialog} title=${hasFailed ? `${action}: ${failed.length} refused` : title} close=${close}>
    <form onSubmit=${submit}>
      ${
        hasNames && !hasFailed
          ? html`<p>
              ${asked.slice(0, maxNamed).map(({ id, name }) => html`<bdi key=${id} class="word">${name}</bdi> `)}
              ${asked.length > maxNamed ? `and ${asked.length - maxNamed} more` : ""}
            </p>`
          : null
      }
      ${hasFailed ? null : children}
      ${
        asksCount && !isOver
          ? html`<${Field} label=${`Type ${asked.length}, the number of machines, to go on`}>
              <input
                value=${typed}
                autocomplete="off"
                inputmode="numeric"
                autofocus
                onInput=${(event: Event) => type(valueOf(event))}
              />
            <//>`
          : null
      }
      <p role="status">
        ${done === undefined ? null : `${done - failed.length} of ${asked.length} are done.`}
      </p>
      ${
        failed.length === 0
          ? null
          : html`<div class="failure" role="alert">
              <p>${failed.length === 1 ? "This one was" : "These were"} refused:</p>
              <ul>
                ${failed.map(({ name, why }) => html`<li key=${name}><bdi>${name}</bdi>: <bdi>${why}</bdi></li>`)}
              </ul>
            </div>`
      }
      <div class="actions">
        ${
          isOver
            ? null
            : html`<button
                class=${isDanger ? "danger" : "primary"}
                disabled=${isRunning || (asksCount && typed.trim() !== `${asked.length}`)}
              >
                ${action}
              </button>`
        }
        <button type="button" onClick=${close}>${isOver ? "Close" : "Cancel"}</button>
      </div>
    </form>
  <//>`;
}
