// The bar of what is changed and not saved yet, the same on Access and Settings.

import type { ComponentChildren } from "preact";
import { Button } from "./button.tsx";
import { Sign } from "./icon.tsx";
import { Pill } from "./tag.tsx";

type DraftBarProps = {
  /** What changes: "1 new rule, 1 changed". */
  changes: string;
  /** A fact beside it. */
  more?: ComponentChildren;
  /** What saving does to others: a sentence for screen readers, and few words for a phone, which has no columns. */
  effect?: { sentence: string; short: string } | undefined;
  /** Why it cannot be saved now. */
  refusal?: string | undefined;
  /** False until it is known whether the draft may be saved. */
  isReady?: boolean;
  isRunning?: boolean;
  /** What "Save" saves. */
  saved?: string;
  save(): unknown;
  discard(): unknown;
  /** More buttons, before the others. */
  actions?: ComponentChildren;
  /** What went wrong, above the bar. */
  failure?: ComponentChildren;
  /** What saving does to others, in up to three columns. */
  children?: ComponentChildren;
};

export const DraftBar = ({
  changes,
  more,
  effect,
  refusal,
  isReady = true,
  isRunning = false,
  saved,
  save,
  discard,
  actions,
  failure,
  children,
}: DraftBarProps) => (
  <section class="draft" aria-label="Draft">
    {failure}
    <header>
      <Pill kind="accent">Draft</Pill>
      <b>{changes}</b>
      <span class="quiet no-phone">{more ?? "kept in this tab"}</span>
      <span class="spring" />
      {/* One live region: the words that matter change in it. */}
      <span class="said" role="status">
        <span class="unseen">{effect?.sentence}</span>
        <span class="only-phone" aria-hidden="true">
          {effect?.short}
        </span>
        {refusal === undefined ? null : (
          <span class="st is-bad">
            <Sign name="need" />
            {refusal}
          </span>
        )}
      </span>
      {actions}
      <Button disabled={isRunning} onClick={discard}>
        Discard
      </Button>
      <Button
        kind="primary"
        label={saved === undefined || isRunning ? undefined : `Save ${saved}`}
        disabled={isRunning || !isReady || refusal !== undefined}
        onClick={save}
      >
        {isRunning ? "Saving…" : "Save"}
      </Button>
    </header>
    {children === undefined ? null : <div class="effects">{children}</div>}
  </section>
);

type SavedBarProps = { words: string; actions: ComponentChildren };

/** In its place after saving: what was done, and the way back. */
export const SavedBar = ({ words, actions }: SavedBarProps) => (
  <section class="draft" aria-label="Saved">
    <header>
      <Pill kind="good" sign="on">
        Saved.
      </Pill>
      <span class="quiet">{words}</span>
      <span class="spring" />
      {actions}
    </header>
  </section>
);
