// Dialogs: the question before an action, a form, and a secret that is shown once.

import type { ComponentChildren } from "preact";
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import type { Sending } from "../contact/api.ts";
import { refresh } from "../contact/resource.ts";
import type { Terminal } from "../words/terminal.ts";
import { unturned } from "../words/foreign-words.ts";
import { staying } from "../frame/router.ts";
import { setUnsaved } from "../frame/unsaved.ts";
import { Field, valueOf } from "./field.tsx";
import { FormFailure, useAction, type Action } from "./form.tsx";
import { FromTerminal, Line, type View } from "./parts.tsx";
import { FormEnd, CloseEnd } from "./button.tsx";

type DialogProps = {
  title: string;
  close: () => void;
  /** With unsaved input, Escape must be pressed twice, and going back stays on the page. */
  hasUnsaved?: boolean;
  /** Without its title: a search stands on top. */
  isPalette?: boolean;
  children: ComponentChildren;
};

const inSight = (element: HTMLElement | null) => element?.scrollIntoView({ block: "nearest" });

/** A modal dialog: Escape closes it, and the focus returns. */
export function Dialog({
  title: asked,
  close,
  hasUnsaved = false,
  isPalette = false,
  children,
}: DialogProps) {
  const title = unturned(asked);
  const place = useRef<HTMLDialogElement>(null);
  const [isWarned, setWarned] = useState(false);
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
      ref={place}
      class={isPalette ? "palette" : undefined}
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

type FormDialogProps = Pick<DialogProps, "title" | "close" | "hasUnsaved" | "children"> & {
  /** What the form does, on its button. */
  action: ComponentChildren;
  form: Pick<Action, "error" | "isRunning" | "submit">;
  /** Something is missing yet. */
  disabled?: boolean;
  /** Fields that show the sentences about them. */
  shown?: readonly string[];
  terminal?: Terminal | undefined;
};

/** A form in a dialog: its fields, why it was refused, the same from the terminal, and its action. */
export const FormDialog = ({
  action,
  form: { error, isRunning, submit },
  disabled,
  shown,
  terminal,
  children,
  ...dialog
}: FormDialogProps) => (
  <Dialog {...dialog}>
    <form onSubmit={submit}>
      {children}
      <FormFailure error={error} {...(shown && { shown })} />
      {terminal && <FromTerminal {...terminal} />}
      <FormEnd disabled={isRunning || disabled} cancel={dialog.close}>
        {action}
      </FormEnd>
    </form>
  </Dialog>
);

type ShownOnceProps = { title: string; secret: string; close: () => void; children: ComponentChildren };

/** Only the button closes it, because the secret is not shown again. `children`: what it is for. */
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
  /** What it asks of the control plane. */
  sends?: Sending<T>;
  /** The path of what is read again after it. */
  changes?: string;
  /** What else it does then; without `sends`, all that it does. */
  run?(answer?: T): unknown;
  close: () => void;
};

/** Asks before a change. The button sends it, and shows its error; `typeName` must be typed first. */
export function Confirm<T>({ title, action, effect, isDanger = true, close, ...props }: ConfirmProps<T>) {
  const { typeName, command, sends, changes } = props;
  const [typed, setTyped] = useState("");
  const { error, isRunning, submit } = useAction(async () => {
    const answer = await sends?.send();
    if (changes !== undefined) await refresh(changes);
    await props.run?.(answer);
    close();
  });
  return (
    <Dialog title={title} close={close}>
      <form onSubmit={submit}>
        <div>
          {typeof effect === "string" ? <p>{effect}</p> : effect}
          {command && <FromTerminal command={command} {...(sends && { call: sends.call })} />}
        </div>
        {typeName === undefined ? null : (
          <Field label={`Type ${unturned(typeName)} to go on`}>
            <input
              value={typed}
              autocomplete="off"
              onInput={(event: InputEvent) => setTyped(valueOf(event))}
            />
          </Field>
        )}
        <FormFailure error={error} />
        <FormEnd
          kind={isDanger ? "solid" : "primary"}
          autofocus={!isDanger}
          disabled={isRunning || (typeName !== undefined && unturned(typed) !== unturned(typeName))}
          cancel={close}
        >
          {isRunning ? "Working…" : unturned(action)}
        </FormEnd>
      </form>
    </Dialog>
  );
}
