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

/** The names of all groups; undefined until they are read. */
export const useGroupNames = (): readonly string[] | undefined =>
  useList(apiPath(groupsApi.list, { slug: currentSlug.value ?? "" }, { page_size: "1000" })).data?.map(
    ({ name }) => name,
  );

export function GroupsField({
  label,
  help = "Separated by commas. Rules name groups.",
  errors,
  value,
  set,
}: Props) {
  const known = useGroupNames();
  // `any` is no group: an exit for it is for all nodes.
  const unknown = known && partsOf(value).filter((each) => each !== "any" && !known.includes(each));
  return (
    <>
      <Listed {...{ label, help, errors, value, set }} offered={known ?? []} />
      {!unknown?.length ? null : (
        <small class="limited" role="status">
          There is no group <bdi>{unknown.join(", ")}</bdi> yet: this makes it.
        </small>
      )}
    </>
  );
}
