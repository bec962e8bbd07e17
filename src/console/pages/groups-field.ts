// The field for groups, separated by commas; it offers those that exist.

import { useId } from "preact/hooks";
import { org } from "../api.ts";
import { partsOf } from "../field-parts.ts";
import { html } from "../html.ts";
import { slug } from "../me.ts";
import { useList } from "../resource.ts";
import { Text } from "../ui/form.ts";

type Props = {
  label: string;
  help?: string;
  errors?: readonly string[] | undefined;
  value: string;
  set(text: string): void;
};

export function GroupsField({
  label,
  help = "Separated by commas. Rules name groups.",
  errors,
  value,
  set,
}: Props) {
  const list = useId();
  const { data } = useList<{ name: string }>(org(slug.value ?? "", "groups/?page_size=1000"));
  // A browser replaces the whole text by what is chosen, so each offer begins with what is typed already.
  const typed = partsOf(value.slice(0, value.lastIndexOf(",") + 1));
  const offers = (data ?? []).filter(({ name }) => !typed.includes(name));
  const unknown =
    data === undefined ? [] : partsOf(value).filter((each) => !data.some(({ name }) => name === each));
  const told = unknown.length === 0 ? help : `There is no group ${unknown.join(", ")} yet. ${help}`;
  return html`<${Text}
      ...${{ label, help: told, errors, value, set }}
      control=${{ list, autocomplete: "off" }}
    />
    <datalist id=${list}>
      ${offers.map(({ name }) => html`<option key=${name} value=${[...typed, name].join(", ")}></option>`)}
    </datalist>`;
}
