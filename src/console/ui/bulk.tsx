// One action on several nodes: confirmed once, carried out for each, and each refusal is named.

import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { ApiError } from "../contact/api.ts";
import { CloseEnd } from "./button.tsx";
import { Dialog, FormDialog } from "./dialog.tsx";
import { Text, useAction } from "./form.tsx";
import { tell } from "./toast.tsx";

export type Item = { id: number; name: string };
type Failed = { name: string; why: string };

/** Requests under way at the same time. */
const atOnce = 6;
/** Of more items, the question names only so many. */
const maxNamed = 50;

const refusedWords = (refused: readonly Failed[]) =>
  refused.length === 0 ? "" : ` Refused: ${refused.map(({ name }) => name).join(" ")}`;

/**
 * Runs the action for each item until `signal` aborts. The first runs alone: it may ask for a fresh second factor, which then
 * holds for the others. `report`: called with the number of those done so far. Returns that number, and the refusals.
 */
export async function runEach<T extends Item>(
  items: readonly T[],
  run: (item: T) => Promise<unknown>,
  report: (done: number) => void,
  signal: AbortSignal,
): Promise<{ done: number; failed: Failed[] }> {
  const failed: Failed[] = [];
  const left = [...items];
  let done = 0;
  const one = async (item: T) => {
    try {
      await run(item);
      report(++done);
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      // The user gave no second factor: stop, because each further request would ask again.
      if (error.code === "step_up_required") left.length = 0;
      failed.push({ name: item.name, why: error.message });
    }
  };
  const runNext = async () => {
    for (let item = left.shift(); item !== undefined && !signal.aborted; item = left.shift()) await one(item);
  };
  const first = left.shift();
  if (first !== undefined) await one(first);
  await Promise.all(Array.from({ length: atOnce }, runNext));
  return { done, failed };
}

type BulkProps<T extends Item> = {
  /** The action, for the question and the button: "Revoke 3 nodes". */
  action: string;
  items: readonly T[];
  isDanger?: boolean;
  /** Whether the user has to type the number of nodes, if there are several. */
  asksCount?: boolean;
  /** False: `action` or `children` name the items. */
  hasNames?: boolean;
  run(item: T): Promise<unknown>;
  /** Called after all of them. */
  after(): Promise<void>;
  close(): void;
  /** The effect, fields, and the same from the terminal. */
  children: ComponentChildren;
};

/** Sends a request for each item, the first one alone, and shows how many are done and which failed. */
export function Bulk<T extends Item>(props: BulkProps<T>) {
  const { isDanger = false, hasNames = true, run, after, close, children } = props;
  // The question keeps its items, although the list changes meanwhile.
  const [{ action, items: asked }] = useState(props);
  const asksCount = props.asksCount === true && asked.length > 1;
  const [typed, setTyped] = useState("");
  const [done, setDone] = useState<number>();
  const [failed, setFailed] = useState<readonly Failed[]>([]);
  const closed = useRef(new AbortController());
  useEffect(() => () => closed.current.abort(), []);
  const work = async () => {
    setDone(0);
    const { done: count, failed: refused } = await runEach(asked, run, setDone, closed.current.signal);
    await after();
    // The dialog was closed meanwhile: by the user, or by its page because too few nodes are left for it.
    if (closed.current.signal.aborted)
      tell(`${action}: ${count} of ${asked.length} are done.${refusedWords(refused)}`);
    else if (refused.length > 0) setFailed(refused);
    else {
      close();
      tell(`${action}: done.`);
    }
  };
  const form = useAction(work);
  const status = done !== undefined ? `${done} of ${asked.length} are done.` : null;
  // The action was confirmed, so the question and its effect are no longer shown.
  if (failed.length > 0)
    return (
      <Dialog title={`${action}: ${failed.length} refused`} close={close}>
        <p role="status">{status}</p>
        <div class="failure" role="alert">
          <ul>
            {failed.map(({ name, why }, at) => (
              <li key={at}>
                <bdi>{name}</bdi>: <bdi>{why}</bdi>
              </li>
            ))}
          </ul>
        </div>
        <CloseEnd close={close} />
      </Dialog>
    );
  return (
    <FormDialog
      title={`${action}?`}
      close={close}
      form={form}
      kind={isDanger ? "solid" : "primary"}
      disabled={asksCount && typed.trim() !== `${asked.length}`}
      action={action}
    >
      {hasNames ? (
        <p>
          {asked.slice(0, maxNamed).map(({ name }) => (
            <>
              <bdi class="word">{name}</bdi>{" "}
            </>
          ))}
          {asked.length > maxNamed ? `and ${asked.length - maxNamed} more` : ""}
        </p>
      ) : null}
      {children}
      {asksCount ? (
        <Text
          label={`Type ${asked.length}, the number of nodes, to go on`}
          value={typed}
          set={setTyped}
          control={{ autocomplete: "off", inputmode: "numeric", autofocus: true }}
        />
      ) : null}
      <p role="status">{status}</p>
    </FormDialog>
  );
}
