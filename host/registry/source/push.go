package source

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	oras "oras.land/oras-go/v2"
	"oras.land/oras-go/v2/content/oci"

	"github.com/gloveboxhq/glovebox/abi/manifest"
	"github.com/gloveboxhq/glovebox/host/registry"
	"github.com/gloveboxhq/glovebox/host/registry/signature"
	"github.com/gloveboxhq/glovebox/host/sandbox"
)

// Pushed is an artifact that stands in a registry or a layout.
type Pushed struct {
	// Digest is that of the module, Bytes its size.
	Digest string
	Bytes  int
	// From is what to fetch it by, held to the digest of the artifact's
	// manifest. Equal modules pushed to equal places have equal ones.
	From string
	// Annotations are what the artifact says of itself, from the module's
	// manifest.
	Annotations map[string]string
}

// config is the configuration of the CNCF's layout. The time is left out, so
// that pushing the same module twice makes the same artifact.
type config struct {
	Architecture string   `json:"architecture"`
	OS           string   `json:"os"`
	LayerDigests []string `json:"layerDigests"`
}

// Push puts a module as an artifact where ref points, which is a registry or a
// local OCI layout folder, with a tag. The module has to be a hand that would be
// admitted and says what it is: name, version, description, licence and
// homepage of its manifest become annotations. A tag that is there already is
// moved, as registries do.
func Push(ctx context.Context, ref Reference, module []byte, o Options) (Pushed, error) {
	ctx, cancel := o.bounded(ctx)
	defer cancel()
	m, err := describe(module)
	if err != nil {
		return Pushed{}, told("push to", ref, err)
	}
	var to oras.Target
	switch {
	case ref.kind != Registry && ref.kind != Layout:
		err = fmt.Errorf("%w: a hand is pushed to oci://REGISTRY/REPOSITORY:TAG, or to a folder as oci:DIR:TAG", ErrReference)
	case ref.tag == "" || ref.pin != "":
		err = fmt.Errorf("%w: name a tag and no digest, such as %s", ErrReference, Reference{kind: ref.kind, path: ref.path, host: ref.host, repository: ref.repository, tag: m.Version})
	case ref.kind == Registry:
		to, err = o.repository(ref)
	default:
		to, err = oci.NewWithContext(ctx, ref.path)
	}
	if err != nil {
		return Pushed{}, told("push to", ref, err)
	}
	annotations := annotate(m)
	digest, err := push(ctx, to, ref.tag, module, m.Name, annotations)
	if err != nil {
		return Pushed{}, told("push to", ref, because(ctx, registryError(ref, err)))
	}
	if ref.kind == Layout {
		if ref.path, err = filepath.Abs(ref.path); err != nil {
			return Pushed{}, err
		}
	}
	return Pushed{Digest: sandbox.Digest(module), Bytes: len(module), From: ref.pinned(digest).String(), Annotations: annotations}, nil
}

// describe returns the manifest of a module that would be admitted.
func describe(module []byte) (manifest.Manifest, error) {
	outline, err := sandbox.Inspect(module)
	if err == nil {
		err = outline.Refusal
	}
	if err != nil {
		return manifest.Manifest{}, err
	}
	if outline.Manifest == nil {
		return manifest.Manifest{}, errors.New("the module has no manifest: write one into it with glovebox hand embed")
	}
	m, err := manifest.Parse(outline.Manifest)
	if err == nil {
		err = registry.Agree(m, outline)
	}
	// Whose key it is, everybody decides alone; one that does not hold, nobody takes.
	if _, refusal := signature.Verify(module, nil, time.Now()); err == nil && (errors.Is(refusal, signature.ErrTampered) || errors.Is(refusal, signature.ErrMalformed)) {
		err = refusal
	}
	return m, err
}

// annotate says in the terms of the OCI what a manifest says.
func annotate(m manifest.Manifest) map[string]string {
	all := map[string]string{
		ocispec.AnnotationTitle:       m.Name,
		ocispec.AnnotationVersion:     m.Version,
		ocispec.AnnotationDescription: m.Description,
		ocispec.AnnotationLicenses:    m.License,
		ocispec.AnnotationAuthors:     strings.Join(m.Authors, ", "),
		ocispec.AnnotationURL:         m.Homepage,
	}
	for key, value := range all {
		if value == "" {
			delete(all, key)
		}
	}
	return all
}

// push stores blobs first, then the manifest, then the tag: whoever sees one
// sees all that it leads to.
func push(ctx context.Context, to oras.Target, tag string, module []byte, name string, annotations map[string]string) (string, error) {
	layer := descriptor(LayerMediaType, module)
	about, err := json.Marshal(config{"wasm", "wasip1", []string{layer.Digest.String()}})
	if err != nil {
		return "", err
	}
	m := ocispec.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest, ArtifactType: ArtifactType,
		Config: descriptor(ConfigMediaType, about), Layers: []ocispec.Descriptor{layer}, Annotations: annotations,
	}
	// Tools that pull an artifact into a folder name the file so.
	m.Layers[0].Annotations = map[string]string{ocispec.AnnotationTitle: name + ".wasm"}
	data, err := json.Marshal(m)
	if err != nil {
		return "", err
	}
	manifest := descriptor(m.MediaType, data)
	for _, blob := range []struct {
		ocispec.Descriptor
		data []byte
	}{{layer, module}, {m.Config, about}, {manifest, data}} {
		there, err := to.Exists(ctx, blob.Descriptor)
		if err == nil && !there {
			err = to.Push(ctx, blob.Descriptor, bytes.NewReader(blob.data))
		}
		if err != nil {
			return "", fmt.Errorf("%s: %w", blob.MediaType, err)
		}
	}
	if err := to.Tag(ctx, manifest, tag); err != nil {
		return "", fmt.Errorf("tag %s: %w", tag, err)
	}
	return manifest.Digest.String(), nil
}

func descriptor(mediaType string, data []byte) ocispec.Descriptor {
	return ocispec.Descriptor{MediaType: mediaType, Digest: digest.FromBytes(data), Size: int64(len(data))}
}
