// Common parts of forms: one request at a time, its failure, and fields that hold texts.

import { maxCodeLength } from "../../api/values.ts";
import type { VNode } from "preact";
import { useEffect, useId, useRef, useState } from "preact/hooks";
import { ApiError, type Sending } from "../contact/api.ts";
import { refresh } from "../contact/resource.ts";
import { isAbout, partsOf } from "../words/field-parts.ts";
import { Field, valueOf, type FieldProps, type Frame } from "./field.tsx";
import { Failure } from "./parts.tsx";

export type Action = {
  error: ApiError | undefined;
  isRunning: boolean;
  /** Does the work. An ApiError is kept in `error`, until the next run. */
  run(): Promise<void>;
  /** The handler of a form. */
  submit(event: Event): void;
};

type Attempts = Pick<Action, "error" | "isRunning"> & {
  attempt(work: () => Promise<unknown>): Promise<void>;
};

/** For several buttons in one place, of which one works at a time. `error`: of the latest attempt. */
export function useAttempts(): Attempts {
  const [error, setError] = useState<ApiError>();
  const [isRunning, setRunning] = useState(false);
  const attempt = async (work: () => Promise<unknown>) => {
    setRunning(true);
    setError(undefined);
    try {
      await work();
    } catch (failure) {
      if (!(failure instanceof ApiError)) throw failure;
      setError(failure);
    } finally {
      setRunning(false);
    }
  };
  return { error, isRunning, attempt };
}

/** One piece of work, such as the sending of a form, with its state. `work` may throw an ApiError. */
export function useAction(work: () => Promise<unknown>): Action {
  const { error, isRunning, attempt } = useAttempts();
  const run = () => attempt(work);
  const submit = (event: Event) => {
    event.preventDefault();
    void run();
  };
  return { error, isRunning, run, submit };
}

/**
 * A form that sends one request: then what begins with the path `changes` is read again, and `end` is called with the answer. `call`: the
 * request as the terminal shows it.
 */
export function useSending<T>(
  sends: Sending<T>,
  changes: string,
  end: (answer: T) => unknown,
): Action & Pick<Sending, "call"> {
  const action = useAction(async () => {
    const answer = await sends.send();
    await refresh(changes);
    await end(answer);
  });
  return { ...action, call: sends.call };
}

/** The failure of a form, unless all its sentences are shown beside fields. `shown`: the fields that show theirs. */
export function FormFailure({
  error,
  shown = [],
}: {
  error: ApiError | undefined;
  shown?: readonly string[];
}) {
  const element = useRef<HTMLDivElement>(null);
  useEffect(() => {
    // A long form may hide the sentence: scroll to it.
    const sentence = element.current?.closest("form")?.querySelector("small.bad, .failure");
    sentence?.scrollIntoView({ block: "nearest" });
  }, [error]);
  if (error === undefined) return null;
  const fields = Object.keys(error.fields);
  const isBesideFields =
    fields.length > 0 && fields.every((key) => shown.some((field) => isAbout(key, field)));
  return <div ref={element}>{isBesideFields ? null : <Failure error={error} />}</div>;
}

type TextProps = Omit<FieldProps, "children"> & {
  /** The component around the control, with its label; by default the label is above the control. */
  frame?: Frame;
  value: string;
  set(text: string): void;
  /** Attributes of the control: type, name, autocomplete and the like. */
  control?: Readonly<Record<string, unknown>>;
};

/** A field of one line. */
export function Text({ frame: FieldFrame = Field, value, set, control = {}, ...field }: TextProps): VNode {
  return (
    <FieldFrame {...field}>
      <input {...control} value={value} onInput={(event: Event) => set(valueOf(event))} />
    </FieldFrame>
  );
}

type ListedProps = Omit<TextProps, "control"> & { offered: readonly string[]; required?: boolean };

/** A field for a list, separated by commas. `offered`: what it could hold, which the browser offers. */
export function Listed({ offered, required = false, ...field }: ListedProps): VNode {
  const list = useId();
  const { value } = field;
  // A browser replaces the whole text by what is chosen, so each offer begins with what is typed already.
  const typed = partsOf(value.slice(0, value.lastIndexOf(",") + 1));
  return (
    <>
      <Text {...field} control={{ list, required, autocomplete: "off" }} />
      <datalist id={list}>
        {offered
          .filter((each) => !typed.includes(each))
          .map((each) => (
            <option key={each} value={[...typed, each].join(", ")} />
          ))}
      </datalist>
    </>
  );
}

/** The field of a code: of the authenticator app, or a recovery code. `control`: more attributes. */
export function SecondFactorCode({ control = {}, ...props }: TextProps): VNode {
  const attributes = {
    name: "otp",
    autocomplete: "one-time-code",
    maxlength: maxCodeLength,
    required: true,
    ...control,
  };
  return <Text {...props} control={attributes} />;
}

/** `choices`: pairs of value and words. */
type ChoiceProps<W extends string> = Omit<TextProps, "control" | "value" | "set"> & {
  value: W;
  set(word: NoInfer<W>): void;
  choices: readonly (readonly [W, string])[];
  disabled?: boolean;
};

/** A choice of one of a few. */
export function Choice<W extends string>({
  frame: FieldFrame = Field,
  choices,
  value,
  set,
  disabled = false,
  ...field
}: ChoiceProps<W>) {
  const pick = (event: Event) => {
    const picked = choices.find(([word]) => word === valueOf(event))?.[0];
    if (picked !== undefined) set(picked);
  };
  return (
    <FieldFrame {...field}>
      <select value={value} disabled={disabled} onChange={pick}>
        {choices.map(([key, words]) => (
          <option key={key} value={key}>
            {words}
          </option>
        ))}
      </select>
    </FieldFrame>
  );
}

const isChecked = ({ target }: Event) => target instanceof HTMLInputElement && target.checked;

type SwitchProps = Omit<TextProps, "control" | "value" | "set"> & {
  value: boolean;
  set(isOn: boolean): void;
  disabled?: boolean;
};

/** A setting that is on or off. */
export function Switch({ frame: FieldFrame = Field, value, set, disabled, ...field }: SwitchProps): VNode {
  return (
    <FieldFrame {...field}>
      <input
        class="switch"
        type="checkbox"
        role="switch"
        checked={value}
        disabled={disabled}
        onChange={(event: Event) => set(isChecked(event))}
      />
    </FieldFrame>
  );
}

type CheckProps = { label: string; checked: boolean; disabled?: boolean; set(isOn: boolean): void };

/** A check box before its label. */
export function Check({ label, checked, disabled = false, set }: CheckProps): VNode {
  const change = (event: Event) => set(isChecked(event));
  return (
    <label class="check">
      <input type="checkbox" checked={checked} disabled={disabled} onChange={change} /> <span>{label}</span>
    </label>
  );
}
