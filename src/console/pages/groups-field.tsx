// The field for groups, separated by commas; it offers those that exist.

import { apiPath } from "../../api/endpoint.ts";
import { groupsApi } from "../../api/groups.ts";
import { useId } from "preact/hooks";
import { partsOf } from "../words/field-parts.ts";
import { slug } from "../contact/me.ts";
import { useList } from "../contact/resource.ts";
import { Text } from "../ui/form.tsx";

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
  const { data } = useList(apiPath(groupsApi.list, { slug: slug.value ?? "" }, { page_size: "1000" }));
  // A browser replaces the whole text by what is chosen, so each offer begins with what is typed already.
  const typed = partsOf(value.slice(0, value.lastIndexOf(",") + 1));
  const offers = (data ?? []).filter(({ name }) => !typed.includes(name));
  const unknown =
    data === undefined ? [] : partsOf(value).filter((each) => !data.some(({ name }) => name === each));
  return (
    <>
      <Text {...{ label, help, errors, value, set }} control={{ list, autocomplete: "off" }} />
      {unknown.length === 0 ? null : (
        <small class="limited" role="status">
          There is no group <bdi>{unknown.join(", ")}</bdi> yet: this makes it.
        </small>
      )}
      <datalist id={list}>
        {offers.map(({ name }) => (
          <option key={name} value={[...typed, name].join(", ")} />
        ))}
      </datalist>
    </>
  );
}
