// The field for groups, separated by commas; it offers those that exist.

import { apiPath } from "../../api/endpoint.ts";
import { groupsApi } from "../../api/groups.ts";
import { partsOf } from "../words/field-parts.ts";
import { currentSlug } from "../contact/me.ts";
import { useList } from "../contact/resource.ts";
import { Listed } from "../ui/form.tsx";

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
  const { data } = useList(apiPath(groupsApi.list, { slug: currentSlug.value ?? "" }, { page_size: "1000" }));
  const unknown =
    data === undefined
      ? []
      : // `any` is no group: an exit for it is for all nodes.
        partsOf(value).filter((each) => each !== "any" && !data.some(({ name }) => name === each));
  return (
    <>
      <Listed {...{ label, help, errors, value, set }} offered={(data ?? []).map(({ name }) => name)} />
      {unknown.length === 0 ? null : (
        <small class="limited" role="status">
          There is no group <bdi>{unknown.join(", ")}</bdi> yet: this makes it.
        </small>
      )}
    </>
  );
}
