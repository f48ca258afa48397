"""What a chain begins with: files that are imported, or a dataset."""

from offline_core.data.curation.converting import ConversionResult
from offline_core.data.datasets.dataset import Dataset, is_dataset, open_dataset
from offline_core.data.importing.config import ConversionConfig, ImportConfig
from offline_core.data.importing.report import ImportResult
from tasks import stages as tasks
from tasks.chain import Chain


def episodes_of(
    chain: Chain, source: str | list[str], importing: ImportConfig, conversion: ConversionConfig
) -> tuple[Dataset, ImportResult | None, ConversionResult | None]:
    """The source as episodes: imported, converted from a table, or as it is."""
    if isinstance(source, list) or not is_dataset(source):
        imported = chain.run("import", tasks.import_data, importing, source=source, output="imported")
        return open_dataset(imported.dataset.uri, imported.dataset.version), imported, None
    data = open_dataset(source)
    if data.codec.name == conversion.format:
        return data, None, None
    converted = chain.run("convert to episodes", tasks.convert, conversion, dataset=data.ref, output="episodes")
    return open_dataset(converted.dataset.uri, converted.dataset.version), None, converted
