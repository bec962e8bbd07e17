// The small parts of which pages are made. Texts from outside are isolated in direction (`bdi`), so that a name cannot
// turn its neighbours around.

import type { ComponentChildren, VNode } from "preact";
import { useEffect, useId, useLayoutEffect, useRef, useState } from "preact/hooks";
import { ago } from "../ago.ts";
import { ApiError } from "../api.ts";
import { commandsIn, unturned } from "../error-words.ts";
import { staying } from "../router.ts";
import { setUnsaved } from "../unsaved.ts";
import { exact, now, utc } from "../times.ts";
import type { StateName } from "../nodes.ts";
import { callText, commandText, type Terminal } from "../terminal.ts";

type View = VNode | readonly VNode[] | string | null | undefined;

/** A text of the control plane, which may contain a command. */
export function Sentence({ text }: { text: string }) {
  return <bdi>{commandsIn(text).map((part, at) => (at % 2 === 0 ? part : <code>{part}</code>))}</bdi>;
}

/** Shows a state by shape, word and colour. */
const states: Readonly<Record<StateName, readonly [shape: string, colour: string]>> = {
  online: ["●", "good"],
  limited: ["◐", "limited"],
  attention: ["▲", "bad"],
  away: ["○", "quiet"],
  revoked: ["✕", "quiet"],
};

export function State({ name, word }: { name: StateName; word: View }) {
  const [shape, colour] = states[name];
  return (
    <span class={`state ${colour}`}>
      <span aria-hidden="true">{shape}</span> {word}
    </span>
  );
}

/** A time as "2 m ago"; the exact one in a title, and in UTC for copies. `at`: ISO 8601 or null. */
export function When({ at, never = "never" }: { at: string | null; never?: string }) {
  return moment(at === null ? null : Date.parse(at), never);
}

/** The same without a component, for rows of long lists. `at`: ms since 1970. */
export function moment(at: number | null, never = "never"): VNode {
  if (at === null) return <span class="quiet">{never}</span>;
  return (
    <time datetime={utc(at)} title={exact(at)}>
      {ago(at, now.value)}
    </time>
  );
}

/** The time with its day. */
export function dated(at: number): VNode {
  return (
    <>
      {moment(at)}, <span class="quiet">{exact(at)}</span>
    </>
  );
}

/** Shows the request id for support, unless the input was wrong. */
export function Failure({ error, retry }: { error: ApiError; retry?: (() => void) | undefined }) {
  return (
    <div class="failure" role="alert">
      <p>
        <Sentence text={error.message} />
      </p>
      {error.hint === undefined ? null : (
        <p>
          <Sentence text={error.hint} />
        </p>
      )}
      {error.requestId === null || error.status <= 401 ? null : (
        <p class="quiet">
          Request, as the log of the control plane names it: <code>{error.requestId}</code>
        </p>
      )}
      {retry === undefined ? null : (
        <button type="button" onClick={retry}>
          Try again
        </button>
      )}
    </div>
  );
}

/** Short facts with their titles. A value may have markup. */
export type Fact = readonly [title: string, value: ComponentChildren];

export function Facts({ facts }: { facts: readonly Fact[] }) {
  return (
    <dl class="facts">
      {facts.map(([title, value]) => (
        <div key={title}>
          <dt>{title}</dt>
          <dd>
            <bdi>{value}</bdi>
          </dd>
        </div>
      ))}
    </dl>
  );
}

/** Shown after a moment, so that fast answers do not flicker. `rows`: how much space the content will take. */
export function Loading({ rows = 6 }: { rows?: number }) {
  const [isShown, show] = useState(false);
  useEffect(() => {
    const timer = setTimeout(() => show(true), 150);
    return () => clearTimeout(timer);
  }, []);
  return (
    <div class="skeleton" aria-busy="true" aria-label="Loading" style={{ height: `${rows * 36}px` }}>
      {isShown ? Array.from({ length: rows }, () => <div />) : null}
    </div>
  );
}

/** An empty list: what will be here, and the action that adds it. */
export function Empty({ text, children }: { text: string; children?: ComponentChildren }) {
  return (
    <div class="empty">
      <p>{text}</p>
      {children}
    </div>
  );
}

export function Copy({ text, label = "Copy" }: { text: string; label?: string }) {
  const [said, say] = useState("");
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      say("Copied");
      setTimeout(() => say(""), 1500);
    } catch {
      // The clipboard is refused by the browser, or missing without TLS.
      say("Not copied: select the text");
    }
  };
  return (
    <button type="button" class="small" onClick={copy}>
      {said || label}
    </button>
  );
}

/** A line to paste, with its button. */
export function Line({ text }: { text: string }) {
  return (
    <div class="line">
      <code>{text}</code>
      <Copy text={text} />
    </div>
  );
}

/** The same from the command line and from the API. */
export function FromTerminal(same: Terminal) {
  return (
    <details class="terminal">
      <summary>From the terminal</summary>
      <Line text={commandText(same)} />
      {same.call === undefined ? null : <Line text={callText(same.call)} />}
    </details>
  );
}

type FieldProps = {
  label: string;
  help?: string | undefined;
  /** The server's sentences about this field. */
  errors?: readonly string[] | undefined;
  children: ComponentChildren;
};

/** Label above, help and errors below, which describe the control: the child, or within it. */
export function Field({ label, help, errors, children }: FieldProps) {
  const id = useId();
  const place = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => {
    const control = place.current?.querySelector("input, select, textarea");
    control?.setAttribute("aria-describedby", id);
    control?.setAttribute("aria-invalid", `${Boolean(errors?.length)}`);
  });
  return (
    <div class="field" ref={place}>
      <label>
        <span>{label}</span>
        {children}
      </label>
      <div id={id}>
        {help === undefined ? null : <small>{help}</small>}
        {errors?.map((sentence) => (
          <small class="bad" role="alert">
            <Sentence text={sentence} />
          </small>
        ))}
      </div>
    </div>
  );
}

type DialogProps = {
  title: string;
  close: () => void;
  /** With unsaved input, Escape must be pressed twice, and going back stays on the page. */
  hasUnsaved?: boolean;
  children: ComponentChildren;
};

const inSight = (element: HTMLElement | null) => element?.scrollIntoView({ block: "nearest" });

/** A modal dialog: Escape closes it, and the focus returns. */
export function Dialog({ title: asked, close, hasUnsaved = false, children }: DialogProps) {
  const title = unturned(asked);
  const place = useRef<HTMLDialogElement>(null);
  const [isWarned, warn] = useState(false);
  // Before the next key event, so that the dialog gets it.
  useLayoutEffect(() => {
    const [before, dialog] = [document.activeElement, place.current];
    dialog?.showModal();
    return () => {
      // While it is open, nothing else can have the focus.
      dialog?.close();
      if (before instanceof HTMLElement) before.focus({ preventScroll: true });
    };
  }, []);
  useLayoutEffect(() => {
    if (!hasUnsaved) return undefined;
    staying.ask = () => warn(true);
    // The browser asks when the tab leaves the console.
    setUnsaved("dialog", true);
    return () => {
      staying.ask = undefined;
      setUnsaved("dialog", false);
    };
  }, [hasUnsaved]);
  const leave = () => (hasUnsaved && !isWarned ? warn(true) : close());
  return (
    <dialog
      ref={place}
      aria-label={title}
      onCancel={(event: Event) => {
        if (!event.cancelable) return;
        event.preventDefault();
        leave();
      }}
      onClose={() => {
        // The browser closes at a second Escape without asking. Null: this page closed the dialog.
        if (place.current === null) return;
        leave();
        // Fails if the dialog is gone already.
        setTimeout(() => place.current?.showModal());
      }}
    >
      <h2>{title}</h2>
      {children}
      {isWarned && hasUnsaved ? (
        <p class="limited" role="alert" ref={inSight}>
          This is not saved. Press Escape again, or Cancel, to discard it.
        </p>
      ) : null}
    </dialog>
  );
}

type ShownOnceProps = { title: string; secret: string; close: () => void; children: ComponentChildren };

/** Only the button closes it, because the secret is not shown again. `children`: what it is for. */
export function ShownOnce({ title, secret, close, children }: ShownOnceProps) {
  return (
    <Dialog title={title} close={() => undefined}>
      <p>It is shown only now. {children}</p>
      <Line text={secret} />
      <div class="actions">
        <button type="button" class="primary" onClick={close}>
          I have kept it
        </button>
      </div>
    </Dialog>
  );
}

type ConfirmProps = {
  /** The question. */
  title: string;
  /** The action, as text of the button: "Revoke db-1". */
  action: string;
  /** The effect, and how to undo it. */
  effect: View;
  /** Whether the user must type the name, because the action cannot be undone. */
  typeName?: string | undefined;
  /** False: the change removes nothing. */
  isDanger?: boolean;
  run: () => Promise<void>;
  close: () => void;
};

export function Confirm({ title, action, effect, typeName, isDanger = true, run, close }: ConfirmProps) {
  const [typed, type] = useState("");
  const [error, fail] = useState<ApiError | undefined>(undefined);
  const [isRunning, runs] = useState(false);
  const submit = async (event: Event) => {
    event.preventDefault();
    runs(true);
    try {
      await run();
      close();
    } catch (failure) {
      if (!(failure instanceof ApiError)) throw failure;
      fail(failure);
    } finally {
      runs(false);
    }
  };
  return (
    <Dialog title={title} close={close}>
      <form onSubmit={submit}>
        <div>{effect}</div>
        {typeName === undefined ? null : (
          <Field label={`Type ${unturned(typeName)} to go on`}>
            <input value={typed} autocomplete="off" onInput={(event: InputEvent) => type(valueOf(event))} />
          </Field>
        )}
        {error === undefined ? null : <Failure error={error} />}
        <div class="actions">
          <button
            class={isDanger ? "danger" : "primary"}
            autofocus={!isDanger}
            disabled={isRunning || (typeName !== undefined && unturned(typed) !== unturned(typeName))}
          >
            {isRunning ? "Working…" : unturned(action)}
          </button>
          <button type="button" onClick={close}>
            Cancel
          </button>
        </div>
      </form>
    </Dialog>
  );
}

/** The text of the control that an event comes from. */
export function valueOf({ target }: Event): string {
  const isControl =
    target instanceof HTMLInputElement ||
    target instanceof HTMLSelectElement ||
    target instanceof HTMLTextAreaElement;
  return isControl ? target.value : "";
}
