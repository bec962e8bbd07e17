// Small parts that show something. Texts from outside are isolated in direction (`bdi`), so that a name cannot
// turn its neighbours around.

import type { ComponentChildren, VNode } from "preact";
import { useEffect, useState } from "preact/hooks";
import { ago } from "../words/ago.ts";
import { ApiError } from "../contact/api.ts";
import { commandsIn } from "../words/foreign-words.ts";
import { exact, now, utc } from "../words/times.ts";
import type { SignName } from "./drawings.ts";
import { Icon, Sign } from "./icon.tsx";
import type { StateName } from "../nodes/states.ts";
import { callText, commandText, type Terminal } from "../words/terminal.ts";

export type View = VNode | readonly VNode[] | string | null | undefined;

/** A text from the control plane, which may contain a command: `commandsIn` returns text and commands in turns. */
export function TextWithCommands({ text }: { text: string }) {
  return <bdi>{commandsIn(text).map((part, at) => (at % 2 === 0 ? part : <code>{part}</code>))}</bdi>;
}

/** The sign of a node's state. */
export const signOf: Readonly<Record<StateName, SignName>> = {
  online: "on",
  relayed: "part",
  limited: "warn",
  waiting: "wait",
  attention: "need",
  away: "off",
  revoked: "gone",
};

/** Shows a state by shape and word; only what needs an administrator has a coloured word. */
export const State = ({ name, word }: { name: StateName; word: View }) => (
  <span class={name === "attention" ? "st is-bad" : "st"}>
    <Sign name={signOf[name]} />
    <span>{word}</span>
  </span>
);

/** A time as "2m ago"; the exact one in a title, and in UTC for copies. `at`: ISO 8601 or null. */
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

/** The time as "2m ago", and the exact one. `at`: ms since 1970. */
export function dated(at: number): VNode {
  return (
    <>
      {moment(at)}, <span class="quiet">{exact(at)}</span>
    </>
  );
}

/** `error`: undefined shows nothing. `retry`: for a button that tries again. */
type FailureProps = { error: ApiError | undefined; retry?: (() => void) | undefined };

/**
 * Shows the request id for support, unless the input was wrong (400), nobody is signed in (401), or no answer came, which
 * has no id.
 */
export function Failure({ error, retry }: FailureProps) {
  if (error === undefined) return null;
  return (
    <div class="failure" role="alert">
      <p>
        <TextWithCommands text={error.message} />
      </p>
      {error.hint === undefined ? null : (
        <p>
          <TextWithCommands text={error.hint} />
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

/**
 * In place of content that is being read: bars, after a moment, so that fast answers do not flicker. With `error`, why there is no
 * content. `rows`: how much space the content will take.
 */
export function Loading({ rows = 6, ...failure }: Partial<FailureProps> & { rows?: number }) {
  const [isShown, setShown] = useState(false);
  useEffect(() => {
    const timer = setTimeout(() => setShown(true), 150);
    return () => clearTimeout(timer);
  }, []);
  if (failure.error !== undefined) return <Failure {...failure} error={failure.error} />;
  return (
    <div class="skeleton" aria-busy="true" style={{ height: `${rows * 36}px` }}>
      <span class="unseen">Loading</span>
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

type CopyProps = {
  text: string;
  label?: string;
  /** With its label, as the action of the page. */
  isMain?: boolean;
  /** What the button shows beside its icon, such as the command itself. */
  children?: ComponentChildren;
};

/** So long the button says that the text was copied. */
const copiedMs = 2000;

/** A button that copies a text. For a moment its icon is a check mark. */
export function Copy({ text, label = "Copy", isMain = false, children }: CopyProps) {
  const [outcome, setOutcome] = useState<"" | "Copied" | "Not copied: select the text">("");
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      setOutcome("Copied");
      setTimeout(() => setOutcome(""), copiedMs);
    } catch {
      // The clipboard is refused by the browser, or missing without TLS.
      setOutcome("Not copied: select the text");
    }
  };
  const isRefused = outcome.startsWith("Not");
  return (
    <>
      <button
        type="button"
        class={isMain ? "small primary" : children === undefined ? "small icon ghost" : "small"}
        title={outcome || label}
        aria-label={children === undefined ? label : undefined}
        onClick={copy}
      >
        <Icon name={outcome === "Copied" ? "check" : "copy"} />
        {isMain ? label : null}
        {children}
        <span role="status" class={isRefused ? "" : "unseen"}>
          {outcome}
        </span>
      </button>
      {/* The text of a button cannot be selected. */}
      {isRefused && children !== undefined ? <code>{text}</code> : null}
    </>
  );
}

/** A button that copies the command that it shows. */
export const CopyCommand = ({ command }: { command: string }) => (
  <Copy text={command}>
    <code>{command}</code>
  </Copy>
);

/** `isMain`: what the page is about. `isText`: no command, such as a secret or a link. */
export type LineProps = { text: string; isMain?: boolean; isText?: boolean };

/** A line to paste, with its button. */
export const Line = ({ text, isMain, isText }: LineProps) => (
  <div class={isText === true ? "cmd" : "cmd run"}>
    <code>{text}</code>
    <Copy text={text} isMain={isMain === true} />
  </div>
);

/** The same from the command line and from the API. */
export function FromTerminal(same: Terminal) {
  return (
    <details class="terminal">
      <summary class="button ghost icon" title="From the terminal" aria-label="From the terminal">
        <Icon name="terminal" />
      </summary>
      <Line text={commandText(same)} />
      {same.call === undefined ? null : <Line text={callText(same.call)} isText />}
    </details>
  );
}
