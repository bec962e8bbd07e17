// The fields of settings, as the contract declares them. Only pages with such fields load them.

import type { ComponentChildren, VNode } from "preact";
import { useLayoutEffect, useState } from "preact/hooks";
import { itemOf, itemText, type Scalar, type Setting, type Settings } from "../../protocol/settings.ts";
import type { ApiError } from "../contact/api.ts";
import { partsOf, sentencesOf } from "../words/field-parts.ts";
import { differing, valuesOf } from "./setting-values.ts";
import { Check, Choice, Listed, Switch, Text } from "./form.tsx";
import { Field, FieldErrors, useDescribed, valueOf, type FieldProps, type Frame } from "./field.tsx";

/**
 * `present`: the values as they are saved; `now`: as they are typed; both by field. `set`: takes the fields that changed; one
 * that is undefined leaves a secret as it is.
 */
type SettingProps = {
  field: string;
  setting: Setting;
  present: object;
  now: object;
  error: ApiError | undefined;
  disabled?: boolean;
  set(more: object): void;
  /** `SettingRow` on a page of settings. Without it, the field is one of a form. */
  frame?: Frame;
  /** In a row: what the change means for the reader. */
  note?: ComponentChildren;
  /** What a list could hold. */
  offered?: readonly string[] | undefined;
};

/** The frame of a field on a page of settings: what it is on the left, the control on the right. */
export function SettingRow({ label, help, errors, isChanged, note, children }: FieldProps): VNode {
  const { id, place } = useDescribed({ errors });
  useLayoutEffect(() => {
    const control = place.current?.querySelector("input, select, textarea");
    if (control) control.id = `${id}-control`;
  });
  return (
    <div class={isChanged === true ? "row changed" : "row"} ref={place}>
      <div>
        <label for={`${id}-control`}>
          <b>{label}</b>
        </label>
        <div id={id}>
          {help === undefined ? null : <p class="help">{help}</p>}
          <FieldErrors errors={errors} />
        </div>
        {note}
      </div>
      {children}
    </div>
  );
}

type FactProps = { title: ComponentChildren; help?: ComponentChildren; children?: ComponentChildren };

/** A row without a field: a fact, or actions. */
export const FactRow = ({ title, help, children }: FactProps) => (
  <div class="row">
    <div>
      <b>{title}</b>
      {help === undefined ? null : <div class="help">{help}</div>}
    </div>
    {children}
  </div>
);

/**
 * The field of a setting, as the contract declares it: a switch for a boolean (a checkbox in a form), a field for a list, a
 * choice of words or of offered numbers, else a text.
 */
export function SettingField({
  field,
  setting,
  present,
  now,
  error,
  disabled = false,
  set,
  frame,
  note,
  offered: items,
}: SettingProps): VNode {
  const { label = "", more, words, values = words, choices = words, placeholder } = setting;
  // `none`: the word for null. `stays`: once set, the value cannot be changed.
  const { offered, unit, none, initial, secret = false, stays = false } = setting;
  const saved: Scalar = Object(present)[field];
  const value: Scalar | readonly unknown[] = Object(now)[field] ?? null;
  const put = (next: unknown) => set({ [field]: next });
  const isChanged = JSON.stringify(value) !== JSON.stringify(saved ?? null);
  const props = {
    label,
    help: more,
    errors: error?.fields[field],
    ...(frame === undefined ? {} : { frame, isChanged, note }),
  };
  if (typeof value === "boolean" && frame !== undefined)
    return <Switch {...props} value={value} disabled={disabled} set={put} />;
  if (typeof value === "boolean")
    return (
      <p>
        <Check label={label} checked={value} disabled={disabled} set={put} />
      </p>
    );
  if (typeof value === "object" && value !== null)
    return <ListField {...{ setting, value, field, put }} errors={error?.fields} offered={items} />;
  // The command line and the API accept any number: a saved one that is not offered is added. Null is there already.
  const numbers = offered && [null, ...new Set([...offered, saved ?? offered[0]])];
  const choosable = values ?? numbers;
  if (choosable !== undefined)
    return (
      <Choice
        {...props}
        value={String(value)}
        disabled={disabled}
        set={(word: string) => put(choosable.find((each) => String(each) === word))}
        choices={choosable.map((each, at) => [
          String(each),
          choices?.[at] ?? (each === null ? "Never" : `${String(each)} ${unit}`),
        ])}
      />
    );
  // What an emptied field sends: undefined leaves a secret as it is, null is no value. For other settings it is the empty text,
  // which is a value only where it is the initial one. Elsewhere the field is required.
  const empty = secret ? undefined : stays || none !== undefined ? null : "";
  return (
    <Text
      {...props}
      value={`${value ?? ""}`}
      set={(text: string) => put(text === "" ? empty : text)}
      control={{
        placeholder,
        required: empty === "" && initial !== "",
        disabled: disabled || (stays && saved !== null),
        ...(secret ? { type: "password", autocomplete: "off" } : {}),
      }}
    />
  );
}

type ListProps = Pick<SettingProps, "field" | "setting" | "offered"> & {
  value: readonly unknown[];
  errors: ApiError["fields"] | undefined;
  put(items: readonly unknown[]): void;
};

/** A list whose changes replace the whole of it. It may be empty if it is so at first: the text of an empty list is "". */
function ListField({ field, setting, offered = [], value, errors, put }: ListProps): VNode {
  const { label = "", more: help, lines = false, initial } = setting;
  const items = value.map((item) => itemText(setting, item));
  const [text, setText] = useState(items.join(lines ? "\n" : ", "));
  const set = (typed: string) => {
    setText(typed);
    put(partsOf(typed, lines ? "\n" : ",").map((item) => itemOf(setting, item)));
  };
  const props = { label, help, errors: sentencesOf(errors, field, items) };
  return lines ? (
    <div class="in">
      <Field {...props}>
        <textarea rows={3} value={text} onInput={(event: Event) => set(valueOf(event))} />
      </Field>
    </div>
  ) : (
    <Listed {...props} value={text} set={set} offered={offered} required={String(initial) !== ""} />
  );
}

/** `changes`: the typed values that differ from the saved ones. */
export type SettingsForm<T> = { present: T; now: T; changes: Partial<T>; set(more: object): void };

/** The values of a form. `saved`: the thing as it is saved; undefined for a new one. `typed`: values that were typed earlier. */
export function useSettings<T extends object>(
  settings: Settings,
  saved?: object,
  typed?: T,
): SettingsForm<T> {
  const [present] = useState<T>(() => valuesOf(settings, saved));
  const [now, setNow] = useState(typed ?? present);
  const set = (more: object) => setNow((before) => ({ ...before, ...more }));
  return { present, now, changes: differing(now, present), set };
}

type FieldsProps<T> = Pick<SettingProps, "error" | "offered"> & { settings: Settings; form: SettingsForm<T> };

/** The fields of declared settings, in the order of their declaration. */
export function SettingFields<T extends object>({ settings, form, ...given }: FieldsProps<T>): VNode {
  return (
    <>
      {Object.entries(settings).map(([field, setting]) => (
        <SettingField key={field} {...form} {...given} {...{ field, setting }} />
      ))}
    </>
  );
}
