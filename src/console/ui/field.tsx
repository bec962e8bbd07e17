// A field of a form: the frame of a control, with its label, help and errors.

import type { ComponentChildren, VNode } from "preact";
import { useId, useLayoutEffect, useRef } from "preact/hooks";
import { TextWithCommands } from "./parts.tsx";

export type FieldProps = {
  label: string;
  help?: string | undefined;
  /** The server's sentences about this field. */
  errors?: readonly string[] | undefined;
  /** On a page of settings: its value is not saved yet. */
  isChanged?: boolean | undefined;
  /** On a page of settings: what the change means for the reader. */
  note?: ComponentChildren;
  children: ComponentChildren;
};
export type Frame = (props: FieldProps) => VNode;

/** Connects a control with its help and errors, for screen readers: `id` is theirs, `place` an element around the control. */
export function useDescribed({ errors }: Pick<FieldProps, "errors">) {
  const id = useId();
  const place = useRef<HTMLDivElement>(null);
  // After each drawing, because the control is made by the caller.
  useLayoutEffect(() => {
    const control = place.current?.querySelector("input, select, textarea");
    control?.setAttribute("aria-describedby", id);
    control?.setAttribute("aria-invalid", `${Boolean(errors?.length)}`);
  });
  return { id, place };
}

export const FieldErrors = ({ errors = [] }: Pick<FieldProps, "errors">) => (
  <>
    {errors.map((sentence) => (
      <small class="bad" role="alert">
        <TextWithCommands text={sentence} />
      </small>
    ))}
  </>
);

/** Label above, help and errors below. */
export function Field({ label, help, errors, children }: FieldProps) {
  const { id, place } = useDescribed({ errors });
  return (
    <div class="field" ref={place}>
      <label>
        <span>{label}</span>
        {children}
      </label>
      <div id={id}>
        {help === undefined ? null : <small>{help}</small>}
        <FieldErrors errors={errors} />
      </div>
    </div>
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
