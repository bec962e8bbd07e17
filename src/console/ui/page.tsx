// A page: its title bar, which stays, and what lies below it.

import type { ComponentChildren, VNode } from "preact";
import { useState } from "preact/hooks";
import { brand } from "../../brand.ts";
import { callText, commandText, type Terminal } from "../words/terminal.ts";
import { Button, CloseEnd } from "./button.tsx";
import { Dialog } from "./dialog.tsx";
import type { IconName } from "./drawings.ts";
import { Icon, Logo, Sign } from "./icon.tsx";
import { Line } from "./parts.tsx";

type PageProps = {
  title: string;
  /** Where the page lies: a link before the title. */
  above?: ComponentChildren;
  /** The state of the object that the page is about. */
  pill?: ComponentChildren;
  /** One fact about all of it. */
  fact?: ComponentChildren;
  actions?: ComponentChildren;
  /** What the page shows, from the command line and from the API. */
  terminal?: Terminal | undefined;
  /** The content has no room around it, because it has a panel at its side. */
  isWhole?: boolean;
  children: ComponentChildren;
};

/** The frame of a page: title, actions, its command, and the content. */
export function Page({ title, above, pill, fact, actions, terminal, isWhole, children }: PageProps): VNode {
  return (
    <>
      <header class="top">
        {above === undefined ? null : (
          <span class="crumb no-phone">
            {above}
            <Icon name="right" />
          </span>
        )}
        <h1 class="cut" title={title}>
          <bdi>{title}</bdi>
        </h1>
        {pill}
        {fact === undefined ? null : <span class="quiet no-phone cut">{fact}</span>}
        <span class="spring" />
        {terminal === undefined ? null : <TerminalButton {...terminal} />}
        {actions}
      </header>
      <div class={isWhole === true ? "whole" : "page"}>{children}</div>
    </>
  );
}

/** The same from the command line and from the API, in a dialog. */
export function TerminalButton({ isSmall, ...same }: Terminal & { isSmall?: boolean }) {
  const [isOpen, setOpen] = useState(false);
  return (
    <>
      <Button
        kind="ghost"
        isSmall={isSmall}
        icon="terminal"
        label="From the terminal"
        onClick={() => setOpen(true)}
      />
      {isOpen ? (
        <Dialog title="From the terminal" close={() => setOpen(false)}>
          <Line text={commandText(same)} />
          {same.call === undefined ? null : <Line text={callText(same.call)} isText />}
          <CloseEnd close={() => setOpen(false)} />
        </Dialog>
      ) : null}
    </>
  );
}

type PanelProps = {
  title?: ComponentChildren;
  /** Beside the title. */
  beside?: ComponentChildren;
  /** At the end of the head. */
  actions?: ComponentChildren;
  /** The panel has a red line: something in it needs an administrator now. */
  isAlarm?: boolean | undefined;
  /** The content has room around it, because it is no list of rows. */
  hasRoom?: boolean | undefined;
  id?: string | undefined;
  /** The content is rows of settings: what it is on the left, the control on the right. */
  isSettings?: boolean | undefined;
  children: ComponentChildren;
};

/** Panels are one level: never one in another. */
export const Panel = ({ title, beside, actions, isAlarm, hasRoom, id, isSettings, children }: PanelProps) => (
  <section class={`panel${isAlarm === true ? " alarm" : ""}${isSettings === true ? " set" : ""}`} id={id}>
    {title === undefined ? null : (
      <header>
        <h2>{title}</h2>
        {beside}
        <span class="spring" />
        {actions}
      </header>
    )}
    {hasRoom === true ? <div class="in">{children}</div> : children}
  </section>
);

type WhyProps = {
  /** What happened. */
  title: ComponentChildren;
  /** `bad`, which is the default: an administrator is needed. */
  kind?: "bad" | "good" | "info";
  /** Instead of the sign. */
  icon?: IconName;
  /** Why, and what to do. */
  children?: ComponentChildren;
  actions?: ComponentChildren;
};

/** What happened, why, and what to do. At most one a page, on top. */
export const Why = ({ title, kind = "bad", icon, children, actions }: WhyProps) => (
  <section class={`why ${kind === "bad" ? "" : kind}`}>
    {icon === undefined ? (
      <Sign name={kind === "bad" ? "need" : kind === "good" ? "on" : "warn"} />
    ) : (
      <Icon name={icon} />
    )}
    <h2>{title}</h2>
    {children}
    {actions === undefined ? null : <div class="group">{actions}</div>}
  </section>
);

type GateProps = {
  title: ComponentChildren;
  /** Within the frame of the console, which has a `main` of its own. */
  isInside?: boolean;
  children: ComponentChildren;
};

/** A page of one column and one purpose: signing in, and what links open. */
export function Gate({ title, isInside, children }: GateProps): VNode {
  const content = (
    <>
      <p class="brand">
        <Logo />
        {brand.title}
      </p>
      <h1>{title}</h1>
      {children}
    </>
  );
  return isInside === true ? <div class="gate">{content}</div> : <main class="gate">{content}</main>;
}

type StepProps = {
  /** From 1. */
  at: number;
  title: ComponentChildren;
  /** What is done is a line, and what comes later is faint. */
  state: "done" | "here" | "later";
  children?: ComponentChildren;
};

/** One of a list of class `steps`. */
export const Step = ({ at, title, state, children }: StepProps) => (
  <li class={state} aria-current={state === "here" ? "step" : undefined}>
    <span class="n">
      {state === "done" ? (
        <>
          <Icon name="check" />
          <span class="unseen">Done</span>
        </>
      ) : (
        at
      )}
    </span>
    <h2>{title}</h2>
    {children}
  </li>
);
