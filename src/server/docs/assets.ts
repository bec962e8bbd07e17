// The two viewers of the OpenAPI document, embedded in the executable: pages load nothing from other hosts.

import redoc from "redoc/bundles/redoc.standalone.js" with { type: "file" };
import swaggerCss from "swagger-ui-dist/swagger-ui.css" with { type: "file" };
import swagger from "swagger-ui-dist/swagger-ui-bundle.js" with { type: "file" };

export const assets: Readonly<Record<string, { path: string; type: string }>> = {
  "swagger-ui.js": { path: swagger, type: "text/javascript; charset=utf-8" },
  "swagger-ui.css": { path: swaggerCss, type: "text/css; charset=utf-8" },
  "redoc.js": { path: redoc, type: "text/javascript; charset=utf-8" },
};

/** ReDoc would load its vendor's logo from this URL. An empty picture replaces it. */
const vendorLogo = "https://cdn.redoc.ly/redoc/logo-mini.svg";
const emptyPicture = "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg'/%3E";

type Asset = { bytes: Uint8Array<ArrayBuffer>; type: string };

/** By name. Read once: the files are large, and anyone may ask for them. */
const cached = new Map<string, Promise<Asset>>();

/** Undefined if there is no file of this name. */
export function readAsset(name: string): Promise<Asset> | undefined {
  const source = Object.hasOwn(assets, name) ? assets[name] : undefined;
  if (source === undefined) return undefined;
  let asset = cached.get(name);
  if (asset === undefined) {
    asset = readSource(source);
    cached.set(name, asset);
    // Do not cache failures.
    asset.catch(() => cached.delete(name));
  }
  return asset;
}

async function readSource({ path, type }: { path: string; type: string }): Promise<Asset> {
  const text = (await Bun.file(path).text()).replaceAll(vendorLogo, emptyPicture);
  return { bytes: new TextEncoder().encode(text), type };
}
