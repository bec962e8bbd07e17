// The names of one machine inside the network: its own, and aliases, which administrators add and delete.

import { apiPath } from "../../api/endpoint.ts";
import { namesApi, type Alias } from "../../api/names.ts";
import { organizationsApi } from "../../api/organizations.ts";
import { useState } from "preact/hooks";
import { hostLabels } from "../../protocol/host-labels.ts";
import type { Node } from "../../protocol/node.ts";
import { call } from "../api.ts";
import { mayAdminister, slug } from "../me.ts";
import { refresh, useList, useResource } from "../resource.ts";
import { FormFailure, Text, useAction } from "../ui/form.tsx";
import { Confirm } from "../ui/dialog.tsx";
import { FromTerminal } from "../ui/parts.tsx";
import { tell } from "../ui/told.tsx";

export function Names({ node }: { node: Node }) {
  const own = slug.value ?? "";
  const path = apiPath(namesApi.list, { slug: own });
  const [gone, ask] = useState<Alias | undefined>(undefined);
  const { data: aliases = [] } = useList(apiPath(namesApi.list, { slug: own }, { page_size: "1000" }));
  const { data } = useResource(apiPath(organizationsApi.retrieve, { slug: own }));
  const full = (name: string) =>
    [`${own}.internal`, data?.name_suffix ?? ""]
      .filter(Boolean)
      .map((domain) => `${name}.${domain}`)
      .join(", ");
  return (
    <>
      <h2>Names</h2>
      <ul class="plain-list">
        {hostLabels(node.name).map((name) => (
          <li key={name}>
            <bdi>{full(name)}</bdi>
          </li>
        ))}
        {aliases
          .filter((each) => each.node === node.id)
          .map((alias) => (
            <li key={alias.id}>
              <bdi>{full(alias.name)}</bdi>{" "}
              <span class="quiet">
                alias{alias.address === null ? "" : ` of ${alias.address}`}
                {alias.is_shadowed ? ", not in use: a machine has this name" : ""}
              </span>{" "}
              {mayAdminister.value ? (
                <button type="button" class="small" onClick={() => ask(alias)}>
                  Delete<span class="unseen"> {alias.name}</span>
                </button>
              ) : null}
            </li>
          ))}
      </ul>
      {mayAdminister.value ? <NewAlias node={node} /> : null}
      {gone === undefined ? null : (
        <Confirm
          title={`Delete the alias ${gone.name}?`}
          action={`Delete ${gone.name}`}
          effect={
            <>
              <p>Machines no longer find this one by it. It can be added again.</p>
              <FromTerminal
                command={["name", "delete", own, gone.name]}
                call={["DELETE", apiPath(namesApi.delete, { slug: own, id: gone.id })]}
              />
            </>
          }
          run={async () => {
            await call(namesApi.delete, { slug: own, id: gone.id });
            await refresh(path);
          }}
          close={() => ask(undefined)}
        />
      )}
    </>
  );
}

function NewAlias({ node }: { node: Node }) {
  const own = slug.value ?? "";
  const path = apiPath(namesApi.list, { slug: own });
  const [name, setName] = useState("");
  const body = { name, node: node.id };
  const { error, isRunning, submit } = useAction(async () => {
    await call(namesApi.create, { slug: own }, body);
    await refresh(path);
    setName("");
    tell(`${node.name} is also ${name}.`);
  });
  return (
    <form class="narrow" onSubmit={submit}>
      <Text
        label="Alias"
        help="A further name, such as intranet."
        errors={error?.fields["name"]}
        value={name}
        set={setName}
        control={{ required: true, autocomplete: "off", autocapitalize: "none" }}
      />
      <FormFailure error={error} shown={["name"]} />
      <button disabled={isRunning}>Add the alias</button>
      <FromTerminal
        command={["name", "create", own, name || "NAME", "--to", node.name]}
        call={["POST", path, body]}
      />
    </form>
  );
}
