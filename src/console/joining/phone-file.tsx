// The file of a phone, once it is made: its download, and what the user does with it.

import { nodesApi } from "../../api/nodes.ts";
import { apiPath } from "../../api/endpoint.ts";
import type { Node } from "../../protocol/node.ts";
import { currentSlug } from "../contact/me.ts";
import { isImportDue } from "../nodes/states.ts";
import { useResource } from "../contact/resource.ts";
import { pathOf } from "../frame/router.ts";
import { Button } from "../ui/button.tsx";
import { Panel, Step, Why } from "../ui/page.tsx";
import { dated } from "../ui/parts.tsx";

type FileProps = {
  node: Node;
  /** It was downloaded, and its key dropped. */
  isSaved: boolean;
  save(): void;
  done(): void;
  importAgain(node: Node): void;
};

export function PhoneFile({ node, isSaved, save, done, importAgain }: FileProps) {
  // As the control plane has it now; `node` is as it was when the file was made.
  const { data: now } = useResource(
    apiPath(nodesApi.retrieve, { slug: currentSlug.value ?? "", id: node.id }),
  );
  const importedAt = node.phone?.imported_at ?? "";
  const day = (at: string | null | undefined) =>
    at == null ? "never" : <span>{dated(Date.parse(at))}</span>;
  const title = (shown: Node) => (
    <>
      The file of <bdi>{shown.name}</bdi>
    </>
  );
  // What was read before this import, which is shown first, says nothing about it.
  if (now?.phone != null && now.phone.imported_at >= importedAt && isImportDue(now.phone))
    return (
      <Panel title={title(now)} hasRoom={true}>
        <p role="status">It is out of date: the phone was changed since, or the CAs were. Make it again.</p>
        <p class="group mt8">
          <Button kind="primary" onClick={() => importAgain(now)}>
            Import again
          </Button>
        </p>
      </Panel>
    );
  return (
    <div class="start">
      <Panel title={title(node)} hasRoom={true}>
        {node.groups.length === 0 ? (
          <Why kind="info" title="It is in no group.">
            <p>
              If it needs one, import it only later: an administrator adds groups on{" "}
              <a href={pathOf(currentSlug.value ?? "", "nodes", node.id)}>its page</a>, then choose Import
              again.
            </p>
          </Why>
        ) : null}
        <ol class="steps mt12">
          <Step at={1} title="Download the file" state={isSaved ? "done" : "here"}>
            {isSaved ? (
              <p role="status">It was offered for download. This page has the key no more.</p>
            ) : (
              <>
                <p class="quiet">
                  The file holds the private key of the phone. Send it to nobody: best open this page on the
                  phone itself.
                </p>
                <p class="group mt8">
                  <Button kind="primary" icon="download" onClick={save}>
                    Download the file
                  </Button>
                </p>
              </>
            )}
          </Step>
          <Step at={2} title="Import it in the app" state={isSaved ? "here" : "later"}>
            <p>
              In the app, add a site <strong>From file</strong>, choose the file, give it a name, and save.
            </p>
          </Step>
          <Step at={3} title="Clean up" state={isSaved ? "here" : "later"}>
            <p>
              Delete the former site of this network in the app: each import makes a new one. Delete the
              downloaded file.
            </p>
            <p class="group mt8">
              <Button onClick={done}>Done</Button>
            </p>
          </Step>
        </ol>
      </Panel>
      <aside class="stackd">
        <Panel title="What it has" hasRoom={true}>
          <dl class="facts">
            <dt>Address</dt>
            <dd class="mono">{node.ip_address}</dd>
            <dt>Valid until</dt>
            <dd>{day(node.certificate?.not_after)}</dd>
            <dt>Import again before</dt>
            <dd>{day(node.phone?.import_by)}</dd>
            <dt>Made</dt>
            <dd>
              <span>{day(importedAt)}, with all revocations until then</span>
            </dd>
          </dl>
        </Panel>
        <Panel title="What the app does not do" hasRoom={true}>
          <p class="quiet">
            The app renews nothing by itself: come here again before that date, and after each rotation of the
            CAs. Until then the phone accepts nodes that are revoked from now on. Other nodes refuse this
            phone within seconds after it is revoked.
          </p>
        </Panel>
      </aside>
    </div>
  );
}
