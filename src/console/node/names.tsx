// The aliases of one node, which administrators add and delete.

import { apiPath } from "../../api/endpoint.ts";
import { namesApi, type Alias } from "../../api/names.ts";
import { useState } from "preact/hooks";
import type { Node } from "../../protocol/node.ts";
import { request } from "../contact/api.ts";
import { mayAdminister, currentSlug } from "../contact/me.ts";
import { useList } from "../contact/resource.ts";
import { Button } from "../ui/button.tsx";
import { Confirm, FormDialog } from "../ui/dialog.tsx";
import { Text, useSending } from "../ui/form.tsx";

/** `full`: the full names of an alias, as text. */
type Props = { node: Node; full(name: string): string };

export function Aliases({ node, full }: Props) {
  const slug = currentSlug.value ?? "";
  const path = apiPath(namesApi.list, { slug });
  /** The dialog that is open: to delete an alias, or to add one. */
  const [asked, setAsked] = useState<Alias | "new">();
  const { data = [] } = useList(apiPath(namesApi.list, { slug }, { page_size: "1000" }));
  const aliases = data.filter((each) => each.node === node.id);
  const close = () => setAsked(undefined);
  return (
    <>
      <ul>
        {aliases.map((alias) => (
          <li key={alias.id}>
            <bdi>{full(alias.name)}</bdi>{" "}
            {alias.address === null ? null : <small class="quiet">of {alias.address} </small>}
            {alias.is_shadowed ? <small class="quiet">not in use: a node has this name </small> : null}
            {mayAdminister.value ? (
              <Button
                kind="ghost"
                isSmall={true}
                icon="close"
                label={`Delete ${alias.name}`}
                onClick={() => setAsked(alias)}
              />
            ) : null}
          </li>
        ))}
        {mayAdminister.value ? (
          <li>
            <Button kind="ghost" isSmall={true} icon="plus" onClick={() => setAsked("new")}>
              Add an alias
            </Button>
          </li>
        ) : aliases.length === 0 ? (
          <li class="faint">none</li>
        ) : null}
      </ul>
      {asked === "new" ? <NewAlias node={node} close={close} /> : null}
      {asked === undefined || asked === "new" ? null : (
        <Confirm
          title={`Delete the alias ${asked.name}?`}
          action={`Delete ${asked.name}`}
          effect="Nodes no longer find this one by it. It can be added again."
          close={close}
          command={["name", "delete", slug, asked.name]}
          sends={request(namesApi.delete, { slug, id: asked.id })}
          changes={path}
        />
      )}
    </>
  );
}

function NewAlias({ node, close }: { node: Node; close(): void }) {
  const slug = currentSlug.value ?? "";
  const path = apiPath(namesApi.list, { slug });
  const [name, setName] = useState("");
  const body = { name, node: node.id };
  const form = useSending(request(namesApi.create, { slug }, body), path, close);
  return (
    <FormDialog
      title={`Add an alias of ${node.name}`}
      close={close}
      hasUnsaved={name !== ""}
      action="Add the alias"
      form={form}
      shown={["name"]}
      command={["name", "create", slug, name || "NAME", "--to", node.name]}
    >
      <Text
        label="Alias"
        help="A further name, such as intranet."
        errors={form.error?.fields["name"]}
        value={name}
        set={setName}
        control={{ required: true, autocomplete: "off", autocapitalize: "none", autofocus: true }}
      />
    </FormDialog>
  );
}
