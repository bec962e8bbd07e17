// Buttons, links that look like them, and small choices.

import type { ComponentChildren } from "preact";
import { Icon } from "./icon.tsx";
import type { IconName } from "./drawings.ts";

type Look = {
  /** `primary` once a page; `tint` is the good answer in a row; `solid` is for the danger in a dialog. */
  kind?: "primary" | "tint" | "ghost" | "danger" | "solid" | undefined;
  /** For rows: 26 px instead of 30. */
  isSmall?: boolean | undefined;
  icon?: IconName | undefined;
  /** Of a button that shows its icon alone: what it does. */
  label?: string | undefined;
  title?: string | undefined;
  children?: ComponentChildren;
};

type Press = {
  href?: undefined;
  disabled?: boolean | undefined;
  isPressed?: boolean | undefined;
  onClick?: ((event: MouseEvent) => unknown) | undefined;
  /** A button of a form sends it. */
  type?: "submit" | "button" | undefined;
};

/** A link that looks like a button. */
type Link = { href: string } & { [prop in Exclude<keyof Press, "href">]?: never };

export function Button({
  kind,
  isSmall,
  icon,
  label,
  title = label,
  href,
  isPressed,
  type = "button",
  children,
  ...rest
}: Look & (Press | Link)) {
  const isIcon = children === undefined;
  const classes = [href !== undefined && "button", kind, isSmall === true && "small", isIcon && "icon"];
  const shared = { class: classes.filter(Boolean).join(" ") || undefined, title, "aria-label": label };
  const inside = (
    <>
      {icon === undefined ? null : <Icon name={icon} />}
      {children}
    </>
  );
  return href === undefined ? (
    <button type={type} aria-pressed={isPressed} {...shared} {...rest}>
      {inside}
    </button>
  ) : (
    <a href={href} {...shared}>
      {inside}
    </a>
  );
}

export type Verb = "approve" | "refuse";

/** The two answers to a request. `name`: of what asks. */
export const Answers = ({ name, give }: { name: string; give(verb: Verb): unknown }) => (
  <span class="group tight">
    <Button isSmall={true} onClick={() => give("refuse")}>
      Refuse<span class="unseen"> {name}</span>
    </Button>
    <Button isSmall={true} kind="tint" onClick={() => give("approve")}>
      Approve<span class="unseen"> {name}</span>
    </Button>
  </span>
);

export type FormEndProps = {
  /** What the form does. */
  children: ComponentChildren;
  kind?: "primary" | "solid" | undefined;
  disabled?: boolean | undefined;
  autofocus?: boolean | undefined;
  cancel(): unknown;
};

/** The end of a form in a dialog: its action, and the way out without it. */
export const FormEnd = ({ children, kind = "primary", disabled, autofocus, cancel }: FormEndProps) => (
  <div class="actions">
    <button type="button" onClick={cancel}>
      Cancel
    </button>
    <button class={kind} disabled={disabled} autofocus={autofocus}>
      {children}
    </button>
  </div>
);

type CloseEndProps = { close(): unknown; kind?: "primary"; children?: string };

/** The end of a dialog that only tells something. */
export const CloseEnd = ({ close, kind, children = "Close" }: CloseEndProps) => (
  <div class="actions">
    <Button kind={kind} onClick={close}>
      {children}
    </Button>
  </div>
);

/** Words of a button; a phone shows the first alone. */
export const Words = ({ first, rest }: { first: string; rest: string }) => (
  <span>
    {first}
    <span class="no-phone"> {rest}</span>
  </span>
);

type SegmentsProps<W extends string> = {
  label: string;
  value: W;
  choices: readonly (readonly [W, string])[];
  set(word: W): void;
};

/** One of a few ways to look at the same. */
export const Segments = <W extends string>({ label, value, choices, set }: SegmentsProps<W>) => (
  <div class="seg" role="group" aria-label={label}>
    {choices.map(([word, words]) => (
      <button type="button" key={word} aria-pressed={word === value} onClick={() => set(word)}>
        {words}
      </button>
    ))}
  </div>
);
