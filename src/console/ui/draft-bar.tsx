// The bar of what is changed and not saved yet, the same on Access and Settings.

import type { ComponentChildren } from "preact";
import { Button } from "./button.tsx";
import { Sign } from "./icon.tsx";
import { Pill } from "./tag.tsx";

type DraftBarProps = {
  /** What changes: "1 new rule, 1 changed". */
  changes: string;
  more?: ComponentChildren;
  /** Why it cannot be saved now. */
  refusal?: string | undefined;
  isRunning?: boolean;
  save(): unknown;
  discard(): unknown;
  /** What saving does to others, in up to three columns. */
  children?: ComponentChildren;
};

export const DraftBar = ({
  changes,
  more,
  refusal,
  isRunning = false,
  save,
  discard,
  children,
}: DraftBarProps) => (
  <section class="draft" aria-label="Draft">
    <header>
      <Pill kind="accent">Draft</Pill>
      <b>{changes}</b>
      <span class="quiet no-phone">{more}</span>
      <span class="spring" />
      {refusal === undefined ? null : (
        <span class="st is-bad" role="status">
          <Sign name="need" />
          {refusal}
        </span>
      )}
      <Button onClick={discard}>Discard</Button>
      <Button kind="primary" disabled={isRunning || refusal !== undefined} onClick={save}>
        {isRunning ? "Saving…" : "Save"}
      </Button>
    </header>
    {children === undefined ? null : <div class="effects">{children}</div>}
  </section>
);
