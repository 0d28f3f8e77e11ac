package source

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/content/oci"
	"oras.land/oras-go/v2/errdef"
	"oras.land/oras-go/v2/registry/remote"
	"oras.land/oras-go/v2/registry/remote/auth"
	"oras.land/oras-go/v2/registry/remote/credentials"
	"oras.land/oras-go/v2/registry/remote/errcode"

	"github.com/gloveboxhq/glovebox/host/sandbox"
)

// The media types of a hand's artifact. An artifact is an OCI image manifest of
// one layer. Configuration and layer are those of the CNCF's Wasm OCI artifact
// layout (https://tag-runtime.cncf.io/wgs/wasm/deliverables/wasm-oci-artifact/),
// so that registries and tools that know it know a hand; the artifact's type
// tells a hand from other modules.
const (
	ArtifactType    = "application/vnd.glovebox.hand.v1"
	ConfigMediaType = "application/vnd.wasm.config.v0+json"
	LayerMediaType  = "application/wasm"
)

// manifestTypes are what a registry may answer with; all but the first are
// asked for to be named when they are refused.
var manifestTypes = []string{
	ocispec.MediaTypeImageManifest, ocispec.MediaTypeImageIndex,
	"application/vnd.docker.distribution.manifest.v2+json", "application/vnd.docker.distribution.manifest.list.v2+json",
}

func (o Options) repository(ref Reference) (*remote.Repository, error) {
	repository, err := remote.NewRepository(ref.host + "/" + ref.repository)
	if err != nil {
		return nil, err
	}
	client := &auth.Client{Client: o.client(ref), Cache: auth.NewCache()}
	client.SetUserAgent("glovebox")
	if o.Logins {
		store, err := credentials.NewStoreFromDocker(credentials.StoreOptions{})
		if err != nil {
			return nil, fmt.Errorf("read the logins of the docker configuration: %w", err)
		}
		client.Credential = credentials.Credential(store)
	}
	repository.Client = client
	repository.PlainHTTP = o.PlainHTTP && ref.loopback()
	repository.ManifestMediaTypes = manifestTypes
	repository.MaxMetadataBytes = MaxManifestBytes
	return repository, nil
}

func (o Options) fetchRegistry(ctx context.Context, ref Reference) ([]byte, Reference, error) {
	repository, err := o.repository(ref)
	if err != nil {
		return nil, ref, err
	}
	if ref.tag == "" && ref.pin == "" {
		ref.tag = DefaultTag
	}
	asked := ref.pin
	if asked == "" {
		asked = ref.tag
	}
	described, body, err := repository.Manifests().FetchReference(ctx, asked)
	if err != nil {
		return nil, ref, registryError(ref, err)
	}
	defer body.Close()
	if described.Size > MaxManifestBytes {
		return nil, ref, fmt.Errorf("%w: its manifest is %d bytes, at most %d are allowed", ErrTooLarge, described.Size, MaxManifestBytes)
	}
	promised := ref.pin
	if promised == "" {
		promised = described.Digest.String()
	}
	data, err := readAll(body, max(described.Size, 0))
	if err == nil {
		err = held(data, promised)
	}
	if err != nil {
		return nil, ref, fmt.Errorf("its manifest: %w", err)
	}
	layer, err := moduleLayer(data, described.MediaType)
	if err != nil {
		return nil, ref, err
	}
	module, err := fetchLayer(ctx, repository.Blobs(), layer)
	if err != nil {
		return nil, ref, registryError(ref, err)
	}
	return module, ref.pinned(sandbox.Digest(data)), nil
}

// fetchLayer reads a module whose descriptor moduleLayer has checked.
func fetchLayer(ctx context.Context, from content.Fetcher, layer ocispec.Descriptor) ([]byte, error) {
	body, err := from.Fetch(ctx, layer)
	if err != nil {
		return nil, fmt.Errorf("its module: %w", err)
	}
	defer body.Close()
	module, err := readAll(body, layer.Size)
	if err == nil && int64(len(module)) < layer.Size {
		err = fmt.Errorf("%w: %d of %d bytes came", ErrIncomplete, len(module), layer.Size)
	}
	if err == nil {
		err = held(module, layer.Digest.String())
	}
	if err != nil {
		return nil, fmt.Errorf("its module: %w", err)
	}
	return module, nil
}

// moduleLayer returns the descriptor of the one module of an artifact, or says
// why the manifest is not that of a hand. declared is the media type under
// which the manifest came.
func moduleLayer(data []byte, declared string) (ocispec.Descriptor, error) {
	refuse := func(format string, a ...any) (ocispec.Descriptor, error) {
		return ocispec.Descriptor{}, fmt.Errorf("%w: %s", ErrNotModule, fmt.Sprintf(format, a...))
	}
	var m struct {
		ocispec.Manifest
		// Manifests are those of an index.
		Manifests []ocispec.Descriptor `json:"manifests"`
	}
	if err := json.Unmarshal(data, &m); err != nil {
		return refuse("its manifest is not JSON as a manifest is: %v", err)
	}
	mediaType := m.MediaType
	if mediaType == "" {
		mediaType = declared
	}
	switch {
	case len(m.Manifests) > 0 || strings.Contains(mediaType, "index") || strings.Contains(mediaType, "manifest.list"):
		return refuse("it is an index of %d manifests: name the one you mean by its digest, as @sha256:…%s", len(m.Manifests), listed(m.Manifests))
	case mediaType != ocispec.MediaTypeImageManifest || declared != mediaType:
		return refuse("its manifest is of type %q, sent as %q: a hand's is %s (see docs/oci.md)", mediaType, declared, ocispec.MediaTypeImageManifest)
	case m.SchemaVersion != 2:
		return refuse("its manifest has schemaVersion %d, which is to be 2", m.SchemaVersion)
	case m.ArtifactType != ArtifactType && !(m.ArtifactType == "" && m.Config.MediaType == ConfigMediaType):
		return refuse("it is of type %q with a configuration of type %q: a hand is of artifactType %s (see docs/oci.md)", m.ArtifactType, m.Config.MediaType, ArtifactType)
	case m.Config.MediaType != ConfigMediaType && m.Config.MediaType != ocispec.MediaTypeEmptyJSON:
		return refuse("its configuration is of type %q: a hand's is %s or %s", m.Config.MediaType, ConfigMediaType, ocispec.MediaTypeEmptyJSON)
	case len(m.Layers) != 1:
		return refuse("it has %d layers: a hand has one, the module", len(m.Layers))
	}
	layer := m.Layers[0]
	switch {
	case layer.MediaType != LayerMediaType:
		return refuse("its layer is of type %q: a hand's is %s, the module itself and no archive", layer.MediaType, LayerMediaType)
	case !isDigest(layer.Digest.String()):
		return refuse("the digest of its module is %q: %s", layer.Digest, howToPin)
	case layer.Size < 1:
		return refuse("the size of its module is said to be %d bytes", layer.Size)
	case layer.Size > sandbox.MaxModuleBytes:
		return ocispec.Descriptor{}, fmt.Errorf("%w: its module has %d bytes, at most %d are allowed", ErrTooLarge, layer.Size, sandbox.MaxModuleBytes)
	case len(layer.URLs) > 0:
		return refuse("its module is said to be elsewhere, at %q: push it to the registry itself", layer.URLs[0])
	}
	// What else a descriptor has, such as a title, is nothing to us.
	return ocispec.Descriptor{MediaType: layer.MediaType, Digest: layer.Digest, Size: layer.Size}, nil
}

// listed names the hands among the manifests of an index, at most five.
func listed(manifests []ocispec.Descriptor) string {
	var names []string
	for _, m := range manifests {
		if isDigest(m.Digest.String()) && m.ArtifactType == ArtifactType && len(names) < 5 {
			names = append(names, m.Digest.String())
		}
	}
	if len(names) == 0 {
		return ""
	}
	return "; its hands are " + strings.Join(names, ", ")
}

// registryError says what a registry's refusal means.
func registryError(ref Reference, err error) error {
	response, answered := errors.AsType[*errcode.ErrorResponse](err)
	switch {
	case errors.Is(err, errdef.ErrNotFound):
		return fmt.Errorf("%w: the registry has no such artifact: check the repository and the tag (%w)", ErrNotFound, err)
	case errors.Is(err, auth.ErrBasicCredentialNotFound), answered && (response.StatusCode == 401 || response.StatusCode == 403):
		return fmt.Errorf("%w: the registry wants a login, or has no such repository: use docker login %s or oras login %[2]s, or check the name (%w)", ErrUnauthorized, ref.host, err)
	case answered && response.StatusCode == 404:
		return fmt.Errorf("%w: %w", ErrNotFound, err)
	}
	return err
}

// fetchLayout reads an artifact of a local OCI layout. The index is read here,
// bounded, rather than by the library, which walks all that it leads to; and
// os.Root lets no link lead out of the folder.
func fetchLayout(ctx context.Context, ref Reference) ([]byte, Reference, error) {
	root, err := os.OpenRoot(ref.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ref, fmt.Errorf("%w: there is no folder %s", ErrNotFound, ref.path)
	}
	if err != nil {
		return nil, ref, err
	}
	defer root.Close()
	folder := regularFiles{root.FS()}
	data, err := readFile(folder, ocispec.ImageLayoutFile, MaxManifestBytes)
	if err != nil {
		return nil, ref, fmt.Errorf("%w: it is no OCI layout: %w", ErrNotModule, err)
	}
	var layout ocispec.ImageLayout
	if err := json.Unmarshal(data, &layout); err != nil || layout.Version != ocispec.ImageLayoutVersion {
		return nil, ref, fmt.Errorf("%w: it is no OCI layout of version %s", ErrNotModule, ocispec.ImageLayoutVersion)
	}
	if data, err = readFile(folder, ocispec.ImageIndexFile, MaxManifestBytes); err != nil {
		return nil, ref, err
	}
	var index ocispec.Index
	if err := json.Unmarshal(data, &index); err != nil {
		return nil, ref, fmt.Errorf("%w: its %s is not JSON as an index is: %w", ErrNotModule, ocispec.ImageIndexFile, err)
	}
	described, err := chosen(index.Manifests, ref)
	if err != nil {
		return nil, ref, err
	}
	blobs := oci.NewStorageFromFS(folder)
	body, err := blobs.Fetch(ctx, described)
	if err != nil {
		return nil, ref, registryError(ref, fmt.Errorf("its manifest: %w", err))
	}
	defer body.Close()
	if data, err = readAll(body, MaxManifestBytes); err == nil {
		err = held(data, described.Digest.String())
	}
	if err != nil {
		return nil, ref, fmt.Errorf("its manifest: %w", err)
	}
	layer, err := moduleLayer(data, described.MediaType)
	if err != nil {
		return nil, ref, err
	}
	module, err := fetchLayer(ctx, blobs, layer)
	if err != nil {
		return nil, ref, registryError(ref, err)
	}
	if ref.path, err = filepath.Abs(ref.path); err != nil {
		return nil, ref, err
	}
	return module, ref.pinned(described.Digest.String()), nil
}

// chosen returns the manifest of an index that ref names: by its digest, by its
// tag, or the only one.
func chosen(manifests []ocispec.Descriptor, ref Reference) (ocispec.Descriptor, error) {
	var found []ocispec.Descriptor
	var tags []string
	for _, m := range manifests {
		tag := m.Annotations[ocispec.AnnotationRefName]
		if tag != "" {
			tags = append(tags, fmt.Sprintf("%q", tag))
		}
		switch {
		case ref.pin != "" && m.Digest.String() != ref.pin, ref.pin == "" && ref.tag != "" && tag != ref.tag:
		case !slices.ContainsFunc(found, func(f ocispec.Descriptor) bool { return f.Digest == m.Digest }):
			found = append(found, m)
		}
	}
	tags = tags[:min(len(tags), 10)]
	switch {
	case len(found) == 0:
		return ocispec.Descriptor{}, fmt.Errorf("%w: the layout has no such artifact; its tags are %s", ErrNotFound, orNone(tags))
	case len(found) > 1:
		return ocispec.Descriptor{}, fmt.Errorf("%w: the layout has %d artifacts: write oci:DIR:TAG; its tags are %s", ErrReference, len(found), orNone(tags))
	case !isDigest(found[0].Digest.String()):
		return ocispec.Descriptor{}, fmt.Errorf("%w: the digest of its manifest is %q: %s", ErrNotModule, found[0].Digest, howToPin)
	}
	return found[0], nil
}

func orNone(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}

// regularFiles is a folder in which nothing but files can be opened: a pipe
// would be waited for.
type regularFiles struct{ fs.FS }

func (f regularFiles) Open(name string) (fs.File, error) {
	info, err := fs.Stat(f.FS, name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a file", name)
	}
	return f.FS.Open(name)
}

func readFile(folder fs.FS, name string, limit int64) ([]byte, error) {
	file, err := folder.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	data, err := readAll(file, limit)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return data, nil
}
