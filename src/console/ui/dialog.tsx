// Dialogs: the question before an action, a form, and a secret that is shown once.

import type { ComponentChildren } from "preact";
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import type { Sending } from "../contact/api.ts";
import { refresh } from "../contact/resource.ts";
import type { Terminal } from "../words/terminal.ts";
import { unturned } from "../words/foreign-words.ts";
import { staying } from "../frame/router.ts";
import { setUnsaved } from "../frame/unsaved.ts";
import { FormFailure, Text, useAction, type Action } from "./form.tsx";
import { FromTerminal, Line, type View } from "./parts.tsx";
import { FormEnd, CloseEnd, type FormEndProps } from "./button.tsx";

type DialogProps = {
  title: string;
  close: () => void;
  /** With unsaved input, Escape must be pressed twice, and going back stays on the page. */
  hasUnsaved?: boolean;
  /** Without its title: a search stands on top. */
  isPalette?: boolean;
  /** In CSS, for a table: wider than usual. A phone shows its cards in what it has. */
  width?: string;
  children: ComponentChildren;
};

const inSight = (element: HTMLElement | null) => element?.scrollIntoView({ block: "nearest" });

/** A modal dialog: Escape closes it, and the focus returns. */
export function Dialog({
  title: givenTitle,
  close,
  hasUnsaved = false,
  isPalette = false,
  width,
  children,
}: DialogProps) {
  // A title may hold the name of a user, whose characters must not change the direction of the rest.
  const title = unturned(givenTitle);
  const element = useRef<HTMLDialogElement>(null);
  const [isWarned, setWarned] = useState(false);
  // A layout effect opens it before the next key event, so that the dialog gets that.
  useLayoutEffect(() => {
    const focused = document.activeElement;
    const dialog = element.current;
    dialog?.showModal();
    return () => {
      // Closed first: while it is open, nothing outside it can take the focus.
      dialog?.close();
      if (focused instanceof HTMLElement) focused.focus({ preventScroll: true });
    };
  }, []);
  useLayoutEffect(() => {
    if (!hasUnsaved) return undefined;
    staying.ask = () => setWarned(true);
    // The browser asks when the tab leaves the console.
    setUnsaved("dialog", true);
    return () => {
      staying.ask = undefined;
      setUnsaved("dialog", false);
    };
  }, [hasUnsaved]);
  const leave = () => (hasUnsaved && !isWarned ? setWarned(true) : close());
  return (
    <dialog
      ref={element}
      style={{ width }}
      class={isPalette ? "palette" : undefined}
      aria-label={title}
      onCancel={(event: Event) => {
        // A second Escape cannot be cancelled: the browser closes the dialog, and `onClose` follows.
        if (!event.cancelable) return;
        event.preventDefault();
        leave();
      }}
      onClose={() => {
        // The browser closes the dialog at a second Escape without asking. Null: this page has closed it.
        if (element.current === null) return;
        leave();
        // Opens it again, unless the page took it away.
        setTimeout(() => element.current?.showModal());
      }}
    >
      {isPalette ? null : <h2>{title}</h2>}
      {children}
      {isWarned && hasUnsaved ? (
        <p class="limited" role="alert" ref={inSight}>
          This is not saved. Press Escape again, or Cancel, to discard it.
        </p>
      ) : null}
    </dialog>
  );
}

type FormDialogProps = Pick<DialogProps, "title" | "close" | "hasUnsaved" | "children"> &
  Pick<FormEndProps, "kind" | "autofocus"> & {
    /** What the form does, on its button. */
    action: ComponentChildren;
    form: Pick<Action, "error" | "isRunning" | "submit"> & { call?: Terminal["call"] };
    /** The action cannot be taken yet: something is missing. */
    disabled?: boolean;
    /** Fields that show the sentences about them. */
    shown?: readonly string[];
    /** The same from the terminal. */
    command?: Terminal["command"] | undefined;
  };

/** A form in a dialog: its fields, why it was refused, the same from the terminal, and its action. */
export const FormDialog = ({
  action,
  form: { error, isRunning, submit, call },
  disabled,
  shown,
  command,
  kind,
  autofocus,
  children,
  ...dialog
}: FormDialogProps) => (
  <Dialog {...dialog}>
    <form onSubmit={submit}>
      {children}
      <FormFailure error={error} {...(shown && { shown })} />
      {command && <FromTerminal command={command} {...(call && { call })} />}
      <FormEnd kind={kind} autofocus={autofocus} disabled={isRunning || disabled} cancel={dialog.close}>
        {action}
      </FormEnd>
    </form>
  </Dialog>
);

type ShownOnceProps = { title: string; secret: string; close: () => void; children: ComponentChildren };

/** A secret. Only the button closes the dialog, because the secret is not shown again. `children`: what it is for. */
export function ShownOnce({ title, secret, close, children }: ShownOnceProps) {
  return (
    <Dialog title={title} close={() => undefined}>
      <p>It is shown only now. {children}</p>
      <Line text={secret} isText />
      <CloseEnd close={close} kind="primary">
        I have kept it
      </CloseEnd>
    </Dialog>
  );
}

type ConfirmProps<T> = {
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
  /** The same from the terminal. */
  command?: Terminal["command"];
  /** The request of the action. */
  sends?: Sending<T>;
  /** The path of the resource that is read again after it. */
  changes?: string;
  /** Called after that, with the answer; without `sends`, this is the action. */
  run?(answer?: T): unknown;
  close: () => void;
};

/** Asks before a change. The button sends it, and shows its error; `typeName` must be typed first. */
export function Confirm<T>({ action, effect, isDanger = true, typeName, ...props }: ConfirmProps<T>) {
  const { sends, changes, close } = props;
  const [typed, setTyped] = useState("");
  const form = useAction(async () => {
    const answer = await sends?.send();
    if (changes !== undefined) await refresh(changes);
    await props.run?.(answer);
    close();
  });
  return (
    <FormDialog
      title={props.title}
      close={close}
      command={props.command}
      form={{ ...form, call: sends?.call }}
      kind={isDanger ? "solid" : "primary"}
      autofocus={!isDanger}
      disabled={typeName !== undefined && unturned(typed) !== unturned(typeName)}
      action={form.isRunning ? "Working…" : unturned(action)}
    >
      <div>{typeof effect === "string" ? <p>{effect}</p> : effect}</div>
      {typeName === undefined ? null : (
        <Text
          label={`Type ${unturned(typeName)} to go on`}
          value={typed}
          set={setTyped}
          control={{ autocomplete: "off" }}
        />
      )}
    </FormDialog>
  );
}
